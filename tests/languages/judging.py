"""Reads judged cases, and searches their texts through real Lucene.

A file of `cases/` holds the texts of one collection and queries with judgments:

* `first`: exactly these are the best results, in any order among themselves;
* `find`: these are found, at any rank;
* `never`: these are not found;
* `nothing: true`: the query finds nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from engine.index.analysis import analyze
from engine.index.languages import FIELD_CODES, field_name
from engine.index.lexical import LexicalIndex
from engine.index.lexical_builder import LexicalBuilder

CASES = Path(__file__).parent / "cases"
SIMILARITY = (0.9, 0.4)


@dataclass(frozen=True, slots=True)
class Case:
    """A query and what it must and must not find.

    Attributes:
        about: what the case shows.
        query: as a caller types it.
        first: the best results.
        find: results at any rank.
        never: no results.
        nothing: there is no result.
    """

    about: str
    query: str
    first: frozenset[str] = frozenset()
    find: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    nothing: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """One collection of judged cases.

    Attributes:
        name: the file's name.
        language: the language all its texts are indexed as.
        texts: id to text.
        cases: the queries.
    """

    name: str
    language: str
    texts: Mapping[str, str]
    cases: tuple[Case, ...]


def read_judged(path: Path) -> Judged:
    """Read a file of cases.

    Raises:
        ValueError: a case judges nothing, or a text that is not there.
    """
    tree = yaml.safe_load(path.read_text("utf-8"))
    cases = []
    for row in tree["cases"]:
        first, find, never = (frozenset(row.get(key, ())) for key in ("first", "find", "never"))
        nothing = row.get("nothing", False)
        case = Case(row["about"], row["query"], first, find, never, nothing)
        judged = case.first | case.find | case.never
        if not judged <= set(tree["texts"]) or not (judged or case.nothing):
            raise ValueError(f"{path.name}: {case.query} is not judged by texts of the file")
        cases.append(case)
    return Judged(path.stem, tree["language"], tree["texts"], tuple(cases))


def all_judged() -> list[Judged]:
    """Read every file, by name."""
    return [read_judged(path) for path in sorted(CASES.glob("*.yaml"))]


class JudgedIndex:
    """The texts of a collection in one Lucene index, in the field of their language."""

    def __init__(self, judged: Judged, folder: Path) -> None:
        """Index the texts."""
        self._field = field_name(judged.language)
        self._names = list(judged.texts)
        builder = LexicalBuilder(folder)
        for text in judged.texts.values():
            builder.add(FIELD_CODES[self._field], text)
        builder.finish()
        self._index = LexicalIndex.open(folder)

    def search(self, query: str) -> list[tuple[str, float]]:
        """Return every text that the query finds with its score, best first."""
        terms = analyze(self._field, query)
        whole = self._index.local_statistics(self._field, tuple(terms))
        asked = self._index.localize(self._field, terms, whole, SIMILARITY)
        hits = self._index.search(asked, len(self._names), self._index.filter(None))
        names = (self._names[ordinal] for ordinal in hits.ordinals.tolist())
        return list(zip(names, hits.scores.tolist(), strict=True))

    def close(self) -> None:
        """Release the files."""
        self._index.close()
