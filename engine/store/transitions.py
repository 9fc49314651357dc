"""How an item's state changes, as pure functions: each returns the next state, or the same one.

The same object back means that nothing changed and no row is to be written.
"""

from __future__ import annotations

from dataclasses import replace

from engine.ids import RevisionId
from engine.store.additions import Candidate
from engine.store.states import ItemState


def added(state: ItemState | None, candidate: Candidate, now: str) -> ItemState:
    """Make a revision the head of its item, which is new when `state` is None."""
    if state is None:
        return ItemState(
            item_id=candidate.item,
            base_id=candidate.new.base_id,
            version=1,
            status="draft",
            head_revision=candidate.revision,
            desired_revision=None,
            current_revision=None,
            current_from=0,
            source_type=candidate.new.source_type,
            source_ref=candidate.new.source_ref,
            published_at=None,
            changed_at=now,
        )
    return _next(
        state,
        replace(
            state,
            head_revision=candidate.revision,
            source_type=candidate.new.source_type,
            source_ref=candidate.new.source_ref,
        ),
        now,
    )


def published(state: ItemState, revision: RevisionId, published_at: str, now: str) -> ItemState:
    """Want a revision to be current. What is current stays so until the next generation."""
    if state.status == "published" and state.desired_revision == revision:
        return state
    wanted = replace(
        state, status="published", desired_revision=revision, published_at=published_at
    )
    return _next(state, wanted, now)


def unpublished(state: ItemState, now: str) -> ItemState:
    """Take a published item back to draft, at once; others stay what they are."""
    if state.status != "published":
        return state
    return _cleared(replace(state, status="draft"), state, now)


def archived(state: ItemState, now: str) -> ItemState:
    """Archive an item, at once."""
    return _cleared(replace(state, status="archived"), state, now)


def current(state: ItemState, revision: RevisionId | None, generation: int, now: str) -> ItemState:
    """Make a revision current from a generation on, if it still is what the item wants."""
    if revision is not None and (state.status != "published" or state.desired_revision != revision):
        return state
    if state.current_revision == revision and state.current_from <= generation:
        return state
    moved = replace(state, current_revision=revision, current_from=generation)
    return _next(state, moved, now)


def _cleared(state: ItemState, before: ItemState, now: str) -> ItemState:
    """Forget what was current, so that it does not come back when another text is published."""
    clear = replace(
        state, desired_revision=None, published_at=None, current_revision=None, current_from=0
    )
    return _next(before, clear, now)


def _next(before: ItemState, after: ItemState, now: str) -> ItemState:
    if after == before:
        return before
    return replace(after, version=before.version + 1, changed_at=now)
