"""pyjnius shares the receiver of a call between threads: the rule of `lucene.py`, and its proof."""

from __future__ import annotations

import ast
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.index.jvm import detach
from engine.index.lexical import LexicalHits, LexicalIndex
from engine.index.lucene import _DECLARED
from engine.index.statistics import FieldStatistics
from tests.engine.index.specimens import index_words

FOLDER = Path(__file__).parents[3] / "engine" / "index"
JAVA_METHODS = {
    member
    for _, members in _DECLARED.values()
    for member, signature in members.items()
    if not signature.startswith(("=", "@"))
} | {"size", "put", "get"}
SOURCES = ("analysis.py", "jvm.py", "lexical.py", "lexical_builder.py", "lucene.py", "postings.py")


def is_plain(node: ast.expr) -> bool:
    """Say whether evaluating an expression can neither call nor release anything."""
    if isinstance(node, ast.Starred):
        return isinstance(node.value, ast.Name)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "self"
    return isinstance(node, ast.Name | ast.Constant)


def breaches(source: str) -> Iterator[int]:
    """Yield the lines of calls that break the rule."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver, arguments = node.func.value, node.args
            java = node.func.attr in JAVA_METHODS and (bool(arguments) or not is_plain(receiver))
            if java and not all(map(is_plain, [receiver, *arguments])):
                yield node.lineno


@pytest.mark.parametrize("source", SOURCES)
def test_java_methods_get_plain_receivers_and_arguments(source: str) -> None:
    text = (FOLDER / source).read_text("utf-8")
    lines = text.splitlines()
    # Look-ups in Python's own mappings and builders share names with Java's methods.
    ours = ("os.environ.get", "values.get", "_totals.get", "frequencies.get", "counts.get")
    found = [line for line in breaches(text) if not any(o in lines[line - 1] for o in ours)]
    assert found == []


def test_the_rule_is_seen_to_be_broken() -> None:
    assert list(breaches("searcher.rewrite(make(query))")) == [1]
    assert list(breaches("reader.leaves().get(0)")) == [1]
    assert list(breaches("weight.bulkScorer(self._context)")) == []


@pytest.mark.jvm
@pytest.mark.usefixtures("jvm")
def test_searches_of_many_threads_and_segments_never_mix(tmp_path: Path) -> None:
    rng = random.Random(7)
    words = [f"w{number}" for number in range(40)]
    indexes = [
        index_words(
            tmp_path / str(place),
            [rng.choices(words[place:], k=rng.randint(1, 30)) for _ in range(50 + 40 * place)],
        )[0]
        for place in range(4)
    ]
    asked = {word: 1 + place % 2 for place, word in enumerate(words[5:13])}

    def look(index: LexicalIndex, step: int) -> tuple[LexicalHits, list[int], list[list[int]]]:
        whole = FieldStatistics(500, 4000 + step, dict.fromkeys(asked, 20 + step))
        allowed = index.filter(np.arange(index.passages) % (2 + step % 2) == 0)
        query = index.localize("text_other", asked, whole, (0.9, 0.4))
        hits = index.search(query, 20, allowed)
        held = index.document_frequencies("text_other", list(asked), allowed)
        counts = index.frequencies("text_other", list(asked), hits.ordinals)
        return hits, held.tolist(), counts.tolist()

    jobs = [(index, step) for step in range(6) for index in indexes]
    alone = [look(*job) for job in jobs]
    wrong: list[str] = []

    def work(seed: int) -> None:
        order = random.Random(seed).sample(range(len(jobs)), len(jobs))
        for place in order:
            hits, held, counts = look(*jobs[place])
            told = alone[place]
            same = (
                hits.ordinals.tolist() == told[0].ordinals.tolist()
                and hits.scores.tolist() == told[0].scores.tolist()
                and hits.frontier == told[0].frontier
                and (held, counts) == told[1:]
            )
            if not same:
                wrong.append(f"thread {seed}, job {place}")
        detach()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    for index in indexes:
        index.close()
