"""A test collection in BEIR form, and the run files that trec_eval reads."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Collection as Names
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from engine.errors import OperatorError

type Scored = Sequence[tuple[str, float]]
"""Document ids with scores, best first."""

Half = Literal["tune", "report"]

HALVES: tuple[Half, ...] = ("tune", "report")


class CollectionError(OperatorError):
    """A folder is not a test collection in BEIR form."""

    code = "octavo_collection"


@dataclass(frozen=True, slots=True)
class Collection:
    """A test collection.

    Attributes:
        name: the folder's name.
        corpus: the file of its documents, for `octavo ingest`.
        queries: query id to text, in the order of the file; only those with a positive judgment.
        qrels: query id to document id to relevance; of the same queries.
        left_out: queries without a positive judgment.
    """

    name: str
    corpus: Path
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    left_out: int

    def sample(self, count: int | None) -> Collection:
        """Return it with at most `count` queries, evenly spaced over the file."""
        if count is None or count >= len(self.queries):
            return self
        names = list(self.queries)
        return self._of([names[index * len(names) // count] for index in range(count)])

    def half(self, which: Half) -> Collection:
        """Return it with the queries of one half, in the order of the file."""
        return self._of([name for name in self.queries if half_of(name) == which])

    def _of(self, names: Names[str]) -> Collection:
        queries = {name: self.queries[name] for name in names}
        return replace(self, queries=queries, qrels={name: self.qrels[name] for name in names})


def half_of(query: str) -> Half:
    """Say in which half a query lies: `tune`, to decide by, or `report`, to publish.

    A bit of the SHA-256 of its id decides, so the halves depend on no order, sample or collection:
    a question that is asked in several languages under one id lies in the same half in all.
    """
    even = hashlib.sha256(query.encode("utf-8")).digest()[0] % 2 == 0
    return "tune" if even else "report"


def collections_in(folder: Path) -> list[Path]:
    """Return the folders of a folder that hold a test collection, by name.

    Raises:
        CollectionError: there is none.
    """
    found = sorted(path.parent for path in folder.glob("*/queries.jsonl"))
    if not found:
        raise CollectionError(f"{folder} holds no folder in BEIR form")
    return found


def read_collection(folder: Path) -> Collection:
    """Read a folder that holds `corpus.jsonl[.gz]`, `queries.jsonl` and `qrels.tsv`.

    The judgments may also lie in `qrels/test.tsv`, as BEIR has them.

    Raises:
        CollectionError: a file is missing, or a line of it cannot be read.
    """
    corpus = _first(folder, "corpus.jsonl.gz", "corpus.jsonl")
    qrels = _read_qrels(_first(folder, "qrels.tsv", "qrels/test.tsv"))
    texts = _read_queries(_first(folder, "queries.jsonl"))
    judged = {
        name: judgments
        for name, judgments in qrels.items()
        if name in texts and any(relevance > 0 for relevance in judgments.values())
    }
    queries = {name: text for name, text in texts.items() if name in judged}
    return Collection(folder.resolve().name, corpus, queries, judged, len(texts) - len(queries))


def _first(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise CollectionError(f"{folder} is not in BEIR form: it has no {names[0]}")


def _read_queries(path: Path) -> dict[str, str]:
    queries = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            queries[str(row["_id"])] = str(row["text"])
        except (ValueError, KeyError, TypeError):
            raise CollectionError(f"{path}, line {number}: not a query") from None
    return queries


def _read_qrels(path: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows, None)  # the header
        for number, row in enumerate(rows, start=2):
            try:
                query, document, relevance = row
                qrels.setdefault(query, {})[document] = int(relevance)
            except ValueError:
                raise CollectionError(f"{path}, line {number}: not a judgment") from None
    return qrels


def strictly_decreasing(scores: Iterable[float]) -> list[float]:
    """Return scores, best first, lowered where needed so that each is below the one before.

    trec_eval ranks by score in single precision and breaks ties by document id, in descending
    order; scores that differ keep it from reordering a run. The result is in float32 steps.
    """
    lowered: list[float] = []
    bound = np.float32(np.inf)
    for score in scores:
        bound = min(np.float32(score), np.nextafter(bound, np.float32(-np.inf)))
        lowered.append(float(bound))
    return lowered


def run_lines(runs: Mapping[str, Scored], tag: str) -> Iterable[str]:
    """Yield the lines of a TREC run: query, Q0, document, rank from 1, score, tag."""
    for query, scored in runs.items():
        scores = strictly_decreasing(score for _, score in scored)
        for rank, ((document, _), score) in enumerate(zip(scored, scores, strict=True), start=1):
            yield f"{query} Q0 {document} {rank} {score:.9g} {tag}\n"
