"""Prefixes of well-known model families, for folders whose files do not say them.

Each is what the family's model card asks for in retrieval. The last part of a model's id or path
tells the family.
"""

from __future__ import annotations

import re
from pathlib import Path

_WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query"
_REPRESENT = "Represent this sentence for searching relevant passages: "
_REPRESENT_ZH = "为这个句子生成表示以用于检索相关文章："

_E5 = r"(?:^|[^a-z0-9])e5(?:[^a-z0-9]|$)"

_FAMILIES = [
    (re.compile(rf"{_E5}.*instruct"), f"{_WEB_SEARCH}\nQuery: ", ""),
    (re.compile(_E5), "query: ", "passage: "),
    (re.compile(r"bge-(?:small|base|large)-en"), _REPRESENT, ""),
    (re.compile(r"bge-(?:small|base|large)-zh"), _REPRESENT_ZH, ""),
    (re.compile(r"arctic-embed-[a-z]+-v2"), "query: ", ""),
    (re.compile(r"arctic-embed"), _REPRESENT, ""),
    (re.compile(r"nomic-embed-text|modernbert-embed"), "search_query: ", "search_document: "),
    (re.compile(r"qwen3-embedding"), f"{_WEB_SEARCH}\nQuery:", ""),
    (re.compile(r"embeddinggemma"), "task: search result | query: ", "title: none | text: "),
]


def family_prefixes(family: str) -> tuple[str, str]:
    """Return the prefixes of queries and of passages; both empty for a family that is not known.

    Args:
        family: the model's id or path.
    """
    name = Path(family).name.lower()
    for pattern, query, passage in _FAMILIES:
        if pattern.search(name):
            return query, passage
    return "", ""
