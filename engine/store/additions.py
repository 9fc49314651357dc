"""What adding revisions means, as pure decisions: which rows are refused, new, or known already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from engine.ids import (
    BaseId,
    ItemId,
    RevisionId,
    content_sha256,
    derive_item_id,
    derive_revision_id,
    id_fault,
)
from engine.store import limits
from engine.store.columns import table_of
from engine.store.layout import REVISIONS
from engine.store.revisions import Identity, NewRevision, RevisionKey

Outcome = Literal["added", "updated", "unchanged"]

SAME_ID = "another content, title, language or source exists under this revision id"
OTHER_BASE = "the item id belongs to another base"
ARCHIVED = "the item is archived: publish it explicitly to bring it back"
WITHDRAWN = "the revision was withdrawn and cannot be published again"


@dataclass(frozen=True, slots=True)
class AddReport:
    """What became of the rows of one `add_revisions`; every row is counted once.

    Attributes:
        added: rows whose revision is new.
        unchanged: rows that were all there already.
        refused: (row number from 0, reason) of rows that changed nothing; by row number.
        updated: rows whose revision was there, but became head or published by this call.
        keys: (item, revision) of every row, None for rows whose ids could not be made.
    """

    added: int
    unchanged: int
    refused: tuple[tuple[int, str], ...]
    updated: int = 0
    keys: tuple[RevisionKey | None, ...] = ()

    def joined(self, later: AddReport, offset: int) -> AddReport:
        """Return the report of both, where `later` starts at row `offset`."""
        moved = tuple((index + offset, reason) for index, reason in later.refused)
        return AddReport(
            self.added + later.added,
            self.unchanged + later.unchanged,
            self.refused + moved,
            self.updated + later.updated,
            self.keys + later.keys,
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A legal row with its ids: `index` is its row number, `derived_id` what it says."""

    index: int
    key: RevisionKey
    new: NewRevision
    sha256: str
    derived_id: RevisionId

    @property
    def item(self) -> ItemId:
        """Return the item id."""
        return self.key[0]

    @property
    def revision(self) -> RevisionId:
        """Return the revision id."""
        return self.key[1]


@dataclass(slots=True)
class Batch:
    """The state of one addition while it is decided."""

    keys: list[RevisionKey | None]
    candidates: list[Candidate]
    refused: dict[int, str]
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def refuse(self, candidate: Candidate, reason: str) -> None:
        """Take a candidate out."""
        self.refused[candidate.index] = reason
        self.candidates.remove(candidate)

    def report(self) -> AddReport:
        """Return what became of every row."""
        counts = dict.fromkeys(("added", "updated", "unchanged"), 0)
        for candidate in self.candidates:
            counts[self.outcomes.get(candidate.index, "unchanged")] += 1
        refused = tuple(sorted(self.refused.items()))
        added, updated, unchanged = counts.values()
        return AddReport(added, unchanged, refused, updated, tuple(self.keys))


def revision_fault(new: NewRevision) -> str | None:
    """Say which limit a row breaks, or return None. The reason never holds the value."""
    checks = (
        ("base id", id_fault(new.base_id)),
        ("title", limits.text_fault(new.title, 1, limits.MAX_TITLE_CHARS)),
        ("content", limits.text_fault(new.content, 1, limits.MAX_CONTENT_CHARS)),
        ("language", limits.language_fault(new.language)),
        ("source type", limits.text_fault(new.source_type, 1, limits.MAX_NAME_CHARS)),
        ("source ref", limits.text_fault(new.source_ref, 0, limits.MAX_SOURCE_REF_CHARS)),
        ("item id", None if new.item_id is None else id_fault(new.item_id)),
        ("revision id", None if new.revision_id is None else id_fault(new.revision_id)),
    )
    for name, fault in checks:
        if fault is not None:
            return f"{name} {fault}"
    if new.item_id is None and not new.source_ref:
        return "give an item id or a source ref to derive it from"
    return None


def prepare(rows: Sequence[NewRevision]) -> Batch:
    """Check rows, give them ids, and refuse those that contradict an earlier row of the batch."""
    batch = Batch([None] * len(rows), [], {})
    known: dict[RevisionKey, Identity] = {}
    bases: dict[ItemId, BaseId] = {}
    for index, new in enumerate(rows):
        fault = revision_fault(new)
        if fault is not None:
            batch.refused[index] = fault
            continue
        candidate = _candidate(index, new)
        batch.keys[index] = candidate.key
        identity = Identity(new.base_id, candidate.derived_id)
        if bases.setdefault(candidate.item, new.base_id) != new.base_id:
            batch.refused[index] = OTHER_BASE
        elif known.setdefault(candidate.key, identity) != identity:
            batch.refused[index] = SAME_ID
        else:
            batch.candidates.append(candidate)
    return batch


def _candidate(index: int, new: NewRevision) -> Candidate:
    sha256 = content_sha256(new.content)
    item = new.item_id or derive_item_id(new.base_id, new.source_ref)
    derived = derive_revision_id(
        item, new.title, new.language, new.source_type, new.source_ref, sha256
    )
    return Candidate(index, (item, new.revision_id or derived), new, sha256, derived)


def refuse_contradictions(
    batch: Batch, bases: Mapping[ItemId, BaseId], existing: Mapping[RevisionKey, Identity]
) -> list[Candidate]:
    """Refuse the rows that contradict what is stored, and return those that are new.

    Args:
        batch: its refusals are added to.
        bases: the base of each item that exists.
        existing: the identity of each revision that exists.

    Returns:
        The first candidate of each key that does not exist yet, in row order.
    """
    new: dict[RevisionKey, Candidate] = {}
    for candidate in tuple(batch.candidates):
        held = existing.get(candidate.key)
        if bases.get(candidate.item, candidate.new.base_id) != candidate.new.base_id:
            batch.refuse(candidate, OTHER_BASE)
        elif held is None:
            new.setdefault(candidate.key, candidate)
        elif held.derived_id != candidate.derived_id:
            batch.refuse(candidate, SAME_ID)
    return list(new.values())


def revision_rows(candidates: Sequence[Candidate], created_at: str) -> pa.Table:
    """Return candidates as rows of the `revisions` table."""
    rows = [
        {
            "item_id": candidate.item,
            "revision_id": candidate.revision,
            "base_id": candidate.new.base_id,
            "title": candidate.new.title,
            "content": candidate.new.content,
            "language": candidate.new.language,
            "source_type": candidate.new.source_type,
            "source_ref": candidate.new.source_ref,
            "content_sha256": candidate.sha256,
            "derived_id": candidate.derived_id,
            "created_at": created_at,
        }
        for candidate in candidates
    ]
    return table_of(rows, REVISIONS.schema)
