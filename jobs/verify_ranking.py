"""`octavo verify ranking`: the served ranking against brute force over every passage."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from engine.authorization import Principal, readable_bases, require_read
from engine.config import Config
from engine.contract import SearchRequest
from engine.encoders.encoder import Encoder
from engine.encoders.opening import open_encoder
from engine.errors import (
    ConflictError,
    EncoderError,
    NotFoundError,
    ResourceUnavailableError,
    SegmentRefusedError,
)
from engine.index.generation import GenerationLog, GenerationRecord
from engine.index.jvm import start_jvm
from engine.index.manifest import read_manifest
from engine.index.postings import RawPostings
from engine.store.catalog import Catalog
from engine.store.opening import Store, open_store
from jobs.progress import Progress
from jobs.ranking.comparison import AGREE, DISAGREE, ROUNDING, Difference, Verdict, compare
from jobs.ranking.corpus import Mask, Passages, read_passages
from jobs.ranking.lexical import Bm25
from jobs.ranking.reference import Expected, Question, Reference, Scored
from jobs.ranking.semantic import Float32, Vectors
from jobs.ranking.soundness import untrue
from jobs.segments import segment_path
from jobs.verify_queries import QueryLine
from jobs.verify_served import Answer, Served, ServedHere, ServedThere, deeper

UNCERTIFIED = "uncertified"
KINDS = (AGREE, ROUNDING, DISAGREE, UNCERTIFIED)

_PLAIN_LINES = 10


@dataclass(frozen=True, slots=True)
class RankingOrder:
    """What to verify.

    Attributes:
        lines: the queries.
        principal: who asks.
        url: a running server's root; None: the engine in this process.
        token: the principal's, for that server.
    """

    lines: tuple[QueryLine, ...]
    principal: Principal
    url: str | None = None
    token: str | None = None


@dataclass(slots=True)
class ModeCount:
    """What comparing the answers of one mode came to."""

    kinds: Counter[str] = field(default_factory=Counter)
    same: int = 0
    largest: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object; `uncertified_same`: uncertified answers that are right."""
        return {
            "answers": self.kinds.total(),
            **{kind: self.kinds[kind] for kind in KINDS},
            "uncertified_same": self.same,
            "largest_difference": self.largest,
        }


@dataclass(slots=True)
class RankingReport:
    """What was compared, and what was found."""

    generation: int
    served: str
    principal: str
    passages: int
    readable: int
    approximate: bool
    queries: int = 0
    modes: dict[str, ModeCount] = field(default_factory=dict)
    findings: list[tuple[int, SearchRequest, Difference]] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)

    @property
    def agreed(self) -> bool:
        """Say whether no answer disagrees."""
        return not any(count.kinds[DISAGREE] for count in self.modes.values())

    def count(self, kind: str) -> int:
        """Return how many answers are of a kind."""
        return sum(count.kinds[kind] for count in self.modes.values())

    @property
    def largest(self) -> float:
        """Return the largest difference of two scores in any answer."""
        return max((count.largest for count in self.modes.values()), default=0.0)

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        recall = None
        if self.approximate and self.recalls:
            mean = sum(self.recalls) / len(self.recalls)
            recall = {"mean": round(mean, 6), "least": round(min(self.recalls), 6)}
        return {
            "verified": self.agreed,
            "generation": self.generation,
            "served": self.served,
            "principal": self.principal,
            "passages": self.passages,
            "readable_passages": self.readable,
            "vector_search": "approximate" if self.approximate else "exact",
            "queries": self.queries,
            "answers": sum(count.kinds.total() for count in self.modes.values()),
            **{kind: self.count(kind) for kind in KINDS},
            "largest_difference": self.largest,
            "recall_at_rank_window": recall,
            "modes": {mode: count.document() for mode, count in self.modes.items()},
            "disagreements": [
                {
                    "line": line,
                    "query": request.query,
                    "mode": request.mode,
                    "base": request.base,
                    **difference.document(),
                }
                for line, request, difference in self.findings
            ],
        }


# ------------------------------------------------------------------------------- the reference


@dataclass(frozen=True, slots=True)
class _Stored:
    """The generation that is verified, as the reference reads it."""

    record: GenerationRecord
    catalog: Catalog
    reference: Reference
    readable: frozenset[str]
    counted: Mask
    approximate: bool

    @property
    def passages(self) -> Passages:
        return self.reference.passages


@contextmanager
def _stored(config: Config, store: Store, principal: Principal) -> Iterator[_Stored]:
    """Read the newest generation.

    Raises:
        NotFoundError: there is none.
        SegmentRefusedError: a file cannot be read, or its parts disagree.
    """
    catalog = store.catalog.poll()
    record = GenerationLog(store.storage).newest()
    if record is None:
        raise NotFoundError("there is no generation yet: run `octavo reindex`")
    folders = [segment_path(store.storage, segment.name) for segment in record.segments]
    start_jvm(config.jvm.heap_mb)
    with ExitStack() as stack:
        postings = [stack.enter_context(RawPostings(folder / "lucene")) for folder in folders]
        number = record.number
        passages = read_passages(
            folders, postings, lambda item: catalog.current_revision(item, number)
        )
        index, search = config.index, config.search
        readable = readable_bases(principal, catalog.bases(), config.organization)
        yield _Stored(
            record,
            catalog,
            Reference(
                passages,
                Bm25(passages, postings, index.k1, index.b),
                Vectors(folders),
                _sample(store, record),
                search.rank_window,
            ),
            readable,
            passages.readable(readable),
            any(read_manifest(folder).vectors.approximate for folder in folders),
        )


def _sample(store: Store, record: GenerationRecord) -> Float32:
    data = store.storage.read_bytes(record.reference.path)
    if hashlib.sha256(data).hexdigest() != record.reference.sha256:
        raise SegmentRefusedError(record.reference.path, "it has changed since it was written")
    sample: Float32 = np.load(io.BytesIO(data), allow_pickle=False)
    return sample


# ------------------------------------------------------------------------------ the comparison


class _Verification:
    """One run: asks every line of both, and counts."""

    def __init__(
        self, stored: _Stored, served: Served, encoder: Encoder | None, report: RankingReport
    ) -> None:
        self._stored, self._served, self._encoder = stored, served, encoder
        self._report = report

    def line(self, line: QueryLine) -> None:
        """Ask one line in every mode that it is asked in."""
        encoded: Float32 | None = None
        if self._encoder is not None and any(r.mode != "lexical" for r in line.requests):
            encoded = self._encoder.encode_queries([line.text])[0]
        stored = self._stored
        scored = stored.reference.score(line.text, encoded, stored.counted)
        self._report.queries += 1
        for request in line.requests:
            self._compare(line, request, scored)
        if stored.approximate and encoded is not None:
            self._recall(line.requests[0], scored)

    def _uncertified(self, request: SearchRequest, served: Answer) -> bool:
        """Say whether an answer may differ because vectors are searched approximately."""
        if not self._stored.approximate or request.mode == "lexical":
            return False
        return not served.certified  # a server does not say: then it is not

    def _compare(self, line: QueryLine, request: SearchRequest, scored: Scored) -> None:
        if request.base is not None and request.base not in self._stored.readable:
            raise ResourceUnavailableError
        served, expected = self._served.ask(request), self._expected(request, scored)
        verdict = _verdict(expected, served, self._served.step)
        count = self._report.modes.setdefault(request.mode, ModeCount())
        if served.coverage is None and self._uncertified(request, served):
            false = untrue(expected, served.results, self._served.step)
            if false is None:
                count.kinds[UNCERTIFIED] += 1
                count.same += verdict.kind != DISAGREE
                return
            verdict = Verdict(DISAGREE, 0.0, false)
        count.kinds[verdict.kind] += 1
        count.largest = max(count.largest, verdict.largest)
        if verdict.difference is not None:
            self._report.findings.append((line.number, request, verdict.difference))

    def _expected(self, request: SearchRequest, scored: Scored) -> Expected:
        limit = request.max_results
        if self._served.most_results is not None:
            limit = min(limit, self._served.most_results)
        question = Question(request.query, request.mode, request.alpha, limit, request.base)
        return self._stored.reference.answer(scored, question)

    def _recall(self, request: SearchRequest, scored: Scored) -> None:
        """Count how many of the nearest items an approximate search finds."""
        window = self._stored.reference.window
        wanted = deeper(request, min(window, self._served.most_results or window))
        expected = self._expected(wanted, scored)
        side = expected.semantic
        if side is None or not len(expected):
            return
        passages = self._stored.passages
        codes = passages.items[side.rows[: len(expected)]].tolist()
        nearest = {passages.item_ids[code] for code in codes}
        found = {result.item for result in self._served.ask(wanted).results}
        self._report.recalls.append(len(nearest & found) / len(nearest))


def _verdict(expected: Expected, served: Answer, step: float) -> Verdict:
    if served.coverage is not None:
        answered, shards = served.coverage
        reason = f"only {answered} of {shards} shards answered"
        return Verdict(DISAGREE, 0.0, Difference(1, reason, None, None))
    return compare(expected, served.results, step)


def verify_ranking(
    config: Config, order: RankingOrder, console: Console, encoder: Encoder | None = None
) -> RankingReport:
    """Compare what is served with brute force over the newest generation.

    Args:
        config: the configuration; a server must run with the same `index` and `search.rank_window`.
        order: the queries, and whom to ask.
        console: where progress is shown.
        encoder: instead of the configured one.

    Raises:
        NotFoundError: there is no generation.
        SegmentRefusedError: a segment is damaged, or its parts disagree.
        EncoderError: the encoder is not the generation's.
        ResourceUnavailableError: a query names a base that the caller may not read.
        ConflictError: the store changed meanwhile. Run it again.
        OperatorError: the server cannot be reached.
    """
    require_read(order.principal)
    store = open_store(config.root)
    with ExitStack() as stack:
        stored = stack.enter_context(_stored(config, store, order.principal))
        chosen = _encoder(config, order, stored.record, encoder)
        served: Served = (
            ServedHere(config, order.principal, chosen)
            if order.url is None
            else ServedThere(order.url, order.token)
        )
        stack.callback(served.close)
        report = RankingReport(
            generation=stored.record.number,
            served=served.name,
            principal=order.principal.subject,
            passages=len(stored.passages),
            readable=int(np.count_nonzero(stored.counted)),
            approximate=stored.approximate,
        )
        verification = _Verification(stored, served, chosen, report)
        _run(order.lines, verification.line, console)
        _require_unchanged(store, stored, served)
    return report


def _encoder(
    config: Config, order: RankingOrder, record: GenerationRecord, given: Encoder | None
) -> Encoder | None:
    if all(request.mode == "lexical" for line in order.lines for request in line.requests):
        return None
    encoder = given or open_encoder(config.encoder)
    if encoder.fingerprint != record.encoder:
        raise EncoderError(
            f"generation {record.number} was made by encoder {record.encoder[:12]}, the "
            f"configured one is {encoder.fingerprint[:12]}"
        )
    return encoder


def _run(lines: Sequence[QueryLine], work: Callable[[QueryLine], None], console: Console) -> None:
    """Work through the lines: under a bar on a terminal, with a plain line at each tenth else."""
    with Progress(console, "comparing rankings", len(lines)) as progress:
        for number, line in enumerate(lines, start=1):
            work(line)
            progress.advance()
            tenth = number * _PLAIN_LINES // len(lines)
            if not console.is_terminal and tenth > (number - 1) * _PLAIN_LINES // len(lines):
                console.print(f"compared {number} of {len(lines)} queries", highlight=False)


def _require_unchanged(store: Store, stored: _Stored, served: Served) -> None:
    newest = GenerationLog(store.storage).newest()
    same = newest is not None and newest.number == stored.record.number
    if not same or store.catalog.poll().version != stored.catalog.version:
        raise ConflictError("the store changed while it was verified: run again")
    if served.generation() not in (None, stored.record.number):
        raise ConflictError(
            f"generation {served.generation()} is served, the newest is {stored.record.number}"
        )
