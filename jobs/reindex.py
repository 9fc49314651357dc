"""`octavo reindex`: the next generation, built from what is published and not yet in the newest.

Two stages with a durable boundary (notes: Ray Data into staged blocks, then one task a shard), then
one commit. A job that was killed goes on where it stopped; nothing unchanged is encoded again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from engine.authorization import ANONYMOUS, readable_bases
from engine.config import Config, dump_config
from engine.errors import ConflictError, EncoderError, SegmentRefusedError
from engine.ids import BaseId
from engine.index.generation import GenerationLog, GenerationRecord
from engine.index.segment_builder import SegmentRecord
from engine.store.catalog import Catalog
from engine.store.opening import Store, open_store
from engine.store.storage import LocalStorage
from engine.store.writer import utc_now
from jobs.cluster import joined
from jobs.encoding import EncodingOrder, encode_blocks
from jobs.faults import unwrapped
from jobs.lock import locked
from jobs.plan import Plan, make_plan
from jobs.progress import Progress
from jobs.sample import reference_sample
from jobs.segments import StoredSegment, stored_segments
from jobs.shards import KEPT, ShardOrder, build_shards
from jobs.staging import Block, BlockReport, Key, Stage, divide, ipc_bytes, keys_table
from jobs.vectorstock import write_stock

LOCK = "locks/reindex"

OnStep = Callable[[str], None]


def ignore_step(step: str) -> None:
    """Do nothing with a step."""


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """What a reindex did.

    Attributes:
        built: whether a generation was committed.
        reason: why not, else empty.
        generation: the newest generation now, 0 when there is none.
        shards: of that generation.
        revisions: added to the index.
        passages: of those revisions.
        encoded: passages that the encoder was asked for, in this run.
        copied: passages whose vector was copied, in this run, kept revisions included; from the
            newest generation or from `jobs.vector_cache`.
        resumed: passages that an earlier, interrupted run had staged.
        segments: built, in this run or an interrupted one.
        total_passages: of that generation.
        seconds: wall clock.
    """

    built: bool
    reason: str
    generation: int
    shards: int
    revisions: int = 0
    passages: int = 0
    encoded: int = 0
    copied: int = 0
    resumed: int = 0
    segments: int = 0
    total_passages: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        rate = self.encoded / self.seconds if self.seconds > 0 else 0.0
        values: dict[str, Any] = {name: getattr(self, name) for name in ReindexReport.__slots__}
        return values | {
            "seconds": round(self.seconds, 1),
            "encoded_per_second": round(rate, 1),
        }


def reindex(
    config: Config,
    console: Console,
    *,
    shards: int | None = None,
    rebuild: bool = False,
    on_step: OnStep = ignore_step,
) -> ReindexReport:
    """Build and commit the next generation, if there is anything to do.

    Args:
        config: the configuration.
        console: where progress is shown.
        shards: how many shards; None: as before, or as configured.
        rebuild: cut everything anew; vectors of unchanged passages are still copied, but those of
            damaged segments.
        on_step: told of each durable step: `staged` (a block), `built` (a segment), `current`
            (what becomes current is written), `committed`.

    Raises:
        ConflictError: another reindex is running, or committed meanwhile. Run it again.
        ConfigurationError: passages are configured otherwise than they were cut.
        EncoderError: the encoder is not the newest generation's.
        SegmentRefusedError: a segment of the newest generation is damaged, and `rebuild` was not
            asked for.
        StorageFullError: no space is left; run it again when there is some.
        StoreError: there is no store.
    """
    started = time.monotonic()
    store = open_store(config.root)
    with locked(store.storage.local_path(LOCK), "another reindex is running"), unwrapped():
        job = _Job(config, store, console, on_step)
        report = job.run(shards, rebuild=rebuild)
    return replace(report, seconds=time.monotonic() - started)


@dataclass(slots=True)
class _Job:
    """One run: its steps in order, and what they counted."""

    config: Config
    store: Store
    console: Console
    on_step: OnStep
    staged: BlockReport = field(default_factory=BlockReport)  # summed, interrupted runs' too
    resumed: int = 0

    @property
    def storage(self) -> LocalStorage:
        return LocalStorage(self.config.root)

    def run(self, shards: int | None, *, rebuild: bool) -> ReindexReport:
        log = GenerationLog(self.storage)
        previous = log.newest()
        catalog = self.store.catalog.poll()
        # a rebuild reads the store alone, so that it is the way out of a damaged generation
        indexed = set() if previous is None or rebuild else self._indexed(previous.segments)
        plan = make_plan(self.config, catalog, previous, indexed, shards=shards, rebuild=rebuild)
        stage = Stage(self.storage, plan.key)
        if plan.kind == "nothing":
            stage.sweep()
            return _nothing(plan, catalog)
        stage.open()
        segments = self._build(plan, stage)
        record = self._commit(log, plan, stage, segments)
        stage.delete()
        return self._report(plan, record, len(segments))

    def _indexed(self, records: Sequence[SegmentRecord]) -> set[Key]:
        segments = stored_segments(self.storage, records)
        try:
            return {key for segment in segments for key in segment.revisions()}
        except SegmentRefusedError as error:
            raise _with_way_out(error) from None

    def _sources(self, plan: Plan) -> list[StoredSegment]:
        """Open and check what may be copied from; a rebuild does without what is damaged."""
        found = []
        for record in () if plan.previous is None else plan.previous.segments:
            try:
                segment = StoredSegment(self.storage, record)
                segment.check()
            except SegmentRefusedError as error:
                if plan.kind != "rebuild":
                    raise _with_way_out(error) from None
                note = escape(f"{error}; its passages are encoded anew")
                self.console.print(note, highlight=False, soft_wrap=True)
                continue
            found.append(segment)
        return found

    def _build(self, plan: Plan, stage: Stage) -> list[SegmentRecord]:
        """Run both stages, as far as they are needed and not done; return the new segments."""
        if not plan.touched:
            return []
        blocks = self._blocks(plan)
        sources = self._sources(plan)
        done = stage.done(blocks)
        for report in done.values():
            self._count(plan, report, resumed=True)
        with joined(self.config.jobs) as own:
            missing = [block for block in blocks if block.name not in done]
            self._encode(plan, stage, missing, sources, own=own)
            order = self._shard_order(plan, stage, blocks)
            segments = []
            with Progress(self.console, "building shards", len(plan.touched)) as progress:
                for record in build_shards(order, plan.touched, own=own):
                    segments.append(record)
                    self.on_step("built")
                    progress.advance()
        return sorted(segments, key=lambda record: record.name)

    def _blocks(self, plan: Plan) -> tuple[Block, ...]:
        return divide(plan.key, plan.added, plan.block_rows(self.config))

    def _encode(
        self,
        plan: Plan,
        stage: Stage,
        blocks: Sequence[Block],
        sources: Sequence[StoredSegment],
        *,
        own: bool,
    ) -> None:
        if not blocks:
            return
        previous = plan.previous
        anew = plan.kind == "rebuild" or previous is None
        order = EncodingOrder(
            config=dump_config(self.config),
            job=plan.key,
            fingerprint="" if anew or previous is None else previous.encoder,
            stock=_stock(sources, stage),
            stock_fingerprint="" if previous is None else previous.encoder,
        )
        total = sum(len(block.keys) for block in blocks)
        with Progress(self.console, "encoding revisions", total) as progress:
            for _, report in encode_blocks(order, blocks, own=own):
                self._count(plan, report, resumed=False)
                self.on_step("staged")
                progress.advance(report.revisions)

    def _count(self, plan: Plan, report: BlockReport, *, resumed: bool) -> None:
        known = self.staged.fingerprint
        if plan.previous is not None and plan.kind != "rebuild":
            known = known or plan.previous.encoder
        if known and report.fingerprint != known:
            raise EncoderError(
                f"encoders {known[:12]} and {report.fingerprint[:12]} met in one job: "
                "`octavo reindex --rebuild` encodes all anew"
            )
        if resumed:
            self.resumed += report.passages
        self.staged = BlockReport(
            revisions=self.staged.revisions + report.revisions,
            passages=self.staged.passages + report.passages,
            encoded=self.staged.encoded + (0 if resumed else report.encoded),
            copied=self.staged.copied + (0 if resumed else report.copied),
            fingerprint=report.fingerprint,
            dimension=report.dimension,
        )

    def _space(self, plan: Plan) -> tuple[str, int]:
        """Return the fingerprint and dimension of the vectors."""
        if self.staged.fingerprint or plan.previous is None:
            return self.staged.fingerprint, self.staged.dimension
        return plan.previous.encoder, plan.previous.dimension

    def _shard_order(self, plan: Plan, stage: Stage, blocks: Sequence[Block]) -> ShardOrder:
        if plan.kept:
            stage.put(KEPT, ipc_bytes(keys_table(plan.kept)))
        fingerprint, dimension = self._space(plan)
        return ShardOrder(
            config=dump_config(self.config),
            job=plan.key,
            generation=plan.generation,
            shards=plan.shards,
            fingerprint=fingerprint,
            dimension=dimension,
            blocks=tuple(block.name for block in blocks),
            sources=plan.previous.segments if plan.kept and plan.previous is not None else (),
        )

    def _commit(
        self, log: GenerationLog, plan: Plan, stage: Stage, segments: Sequence[SegmentRecord]
    ) -> GenerationRecord:
        """Say what becomes current, then commit the generation that holds it."""
        before = plan.previous
        fingerprint, dimension = space = self._space(plan)
        names = [block.name for block in self._blocks(plan)]
        staged, public = (stage, names), _public(self.store.catalog.poll())
        sample = reference_sample(self.config.encoder, self.storage, before, staged, space, public)
        kept = before.segments if plan.kind == "add" and before is not None else ()
        record = GenerationRecord(
            number=plan.generation,
            shards=plan.shards,
            encoder=fingerprint,
            dimension=dimension,
            passages_config=json.dumps(self.config.passages.model_dump(), sort_keys=True),
            reference=sample,
            created_at=utc_now().isoformat(),
            segments=(*kept, *segments),
        )
        newest = log.newest()
        if newest is not None and newest.number >= plan.generation:
            raise ConflictError(f"generation {newest.number} was committed meanwhile: run again")
        held = {*plan.added, *plan.kept, *self._indexed(kept)}
        moves = self.store.catalog.poll().next_generation_moves(plan.generation)
        self.store.writer.set_current([move for move in moves if move in held], plan.generation)
        self.on_step("current")
        log.commit(record)
        self.on_step("committed")
        return record

    def _report(self, plan: Plan, record: GenerationRecord, segments: int) -> ReindexReport:
        total = sum(segment.passages for segment in record.segments)
        kept = total - self.staged.passages if plan.kept else 0
        return ReindexReport(
            built=True,
            reason="",
            generation=record.number,
            shards=record.shards,
            revisions=len(plan.added) + len(plan.kept),
            passages=self.staged.passages + kept,
            encoded=self.staged.encoded,
            copied=self.staged.copied + kept,
            resumed=self.resumed,
            segments=segments,
            total_passages=total,
        )


def _with_way_out(error: SegmentRefusedError) -> SegmentRefusedError:
    """Say with the refusal of a segment what makes another one."""
    hint = "`octavo reindex --rebuild` makes all anew from the stored texts"
    return SegmentRefusedError(error.segment, f"{error.reason}; {hint}")


def _stock(sources: Sequence[StoredSegment], stage: Stage) -> tuple[str, ...]:
    """Index the vectors of some segments in the stage; return where they lie."""
    if sources:
        write_stock(stage.folder, [segment.hashes() for segment in sources])
    return tuple(str(segment.vectors_path) for segment in sources)


def _public(catalog: Catalog) -> frozenset[BaseId]:
    """Return the bases that everybody may read."""
    return readable_bases(ANONYMOUS, catalog.bases(), "")


def _nothing(plan: Plan, catalog: Catalog) -> ReindexReport:
    published = any(state.status == "published" for state in catalog.items())
    reason = "everything published is indexed" if published else "nothing is published"
    before = plan.previous
    if before is None:
        return ReindexReport(False, reason, 0, plan.shards)
    total = sum(segment.passages for segment in before.segments)
    return ReindexReport(False, reason, before.number, before.shards, total_passages=total)
