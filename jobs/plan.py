"""What a reindex has to do: the difference between what is published and the newest generation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from engine.config import Config
from engine.errors import ConfigurationError
from engine.ids import ItemId, RevisionId, ShardId, shard_of
from engine.index.generation import GenerationRecord
from engine.store.catalog import Catalog
from engine.store.tables import bucket_of
from jobs.staging import Key

_BLOCKS_AN_ACTOR = 8
"""At least so many blocks an actor, if revisions suffice: for progress and for resuming."""

Kind = Literal["nothing", "add", "reshard", "rebuild"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One reindex job, decided.

    Attributes:
        kind: `nothing`; `add` segments to those of the newest generation; `reshard`: every
            segment anew, vectors copied; `rebuild`: every revision cut anew.
        generation: the number that is committed.
        shards: of that generation.
        previous: the newest generation, or None.
        added: revisions to read, cut and encode, in the order of the store's files.
        kept: revisions to copy from the previous generation's segments, by key (reshard only).
        key: names the job: equal plans have equal keys.
    """

    kind: Kind
    generation: int
    shards: int
    previous: GenerationRecord | None
    added: tuple[Key, ...]
    kept: tuple[Key, ...]
    key: str

    @property
    def touched(self) -> tuple[ShardId, ...]:
        """Return the shards that get a segment, ascending."""
        items = {item for item, _ in (*self.added, *self.kept)}
        return tuple(sorted({shard_of(item, self.shards) for item in items}))

    def block_rows(self, config: Config) -> int:
        """Return how many revisions a block of stage one holds."""
        parts = _BLOCKS_AN_ACTOR * config.jobs.encoder_actors
        return max(1, min(config.jobs.batch_rows, -(-len(self.added) // parts)))


def desired(catalog: Catalog) -> set[Key]:
    """Return the revisions that the next generation must hold.

    Those that published items desire, of archived bases too (so that activating a base takes
    effect at once), unless withdrawn.
    """
    return {
        (state.item_id, state.desired_revision)
        for state in catalog.items()
        if state.status == "published"
        and state.desired_revision is not None
        and not catalog.withdrawn(state.item_id, state.desired_revision)
    }


def standing(catalog: Catalog) -> set[Key]:
    """Return the revisions that stay current where the desired one does not become so.

    A desired revision may be withdrawn, or give way to a later one before the commit: then the next
    generation shows what was current before, so it must hold that too.
    """
    return {
        (state.item_id, state.current_revision)
        for state in catalog.items()
        if state.status == "published"
        and state.current_revision is not None
        and not catalog.withdrawn(state.item_id, state.current_revision)
    }


def make_plan(
    config: Config,
    catalog: Catalog,
    previous: GenerationRecord | None,
    indexed: Collection[Key],
    *,
    shards: int | None = None,
    rebuild: bool = False,
) -> Plan:
    """Decide what a reindex does.

    Args:
        config: the configuration.
        catalog: the newest catalog.
        previous: the newest generation, or None.
        indexed: the revisions that its segments hold.
        shards: how many shards are wanted; None: as before, or as configured.
        rebuild: cut everything anew.

    Raises:
        ConfigurationError: passages are configured otherwise than they were cut, and `rebuild` was
            not asked for.
    """
    wanted = desired(catalog)
    before = 0 if previous is None else previous.number
    count = shards or (previous.shards if previous is not None else config.jobs.shards)
    if previous is not None and not rebuild:
        _check_passages(config, previous)
    kind = _kind(catalog, previous, wanted - set(indexed), count, rebuild=rebuild)
    needed = wanted | standing(catalog)
    added = needed if kind == "rebuild" else needed - set(indexed)
    kept = needed & set(indexed) if kind == "reshard" else set()
    if kind == "nothing":
        added = set()
    return Plan(
        kind=kind,
        generation=before + 1,
        shards=count,
        previous=previous,
        added=tuple(sorted(added, key=_stored_order)),
        kept=tuple(sorted(kept)),
        key=_plan_key(config, kind, before + 1, count, sorted(added), sorted(kept)),
    )


def _kind(
    catalog: Catalog,
    previous: GenerationRecord | None,
    missing: Collection[Key],
    shards: int,
    *,
    rebuild: bool,
) -> Kind:
    if previous is None:
        return "add" if missing else "nothing"
    if rebuild:
        return "rebuild"
    if shards != previous.shards:
        return "reshard"
    # What is indexed already may still have to become current: a return to an earlier text.
    return "add" if missing or catalog.pending(previous.number) else "nothing"


def _check_passages(config: Config, previous: GenerationRecord) -> None:
    if json.loads(previous.passages_config) == config.passages.model_dump(mode="json"):
        return
    raise ConfigurationError(
        "passages are configured otherwise than the newest generation was cut: "
        "`octavo reindex --rebuild` cuts all anew"
    )


def _stored_order(key: Key) -> tuple[str, ItemId, RevisionId]:
    """Order revisions as the store's files hold them, so that a block touches few files."""
    return bucket_of(key[0]), key[0], key[1]


def _plan_key(config: Config, *parts: object) -> str:
    described = {
        "encoder": config.encoder.model_dump(mode="json", exclude={"device", "threads"}),
        "passages": config.passages.model_dump(mode="json"),
        "index": config.index.model_dump(mode="json"),
        "parts": parts,
    }
    text = json.dumps(described, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
