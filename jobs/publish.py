"""What is public: publishing, unpublishing, archiving, withdrawing, waiting for a generation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from engine.errors import NotFoundError, OperatorError
from engine.ids import BaseId, ItemId, RevisionId
from engine.index.generation import GenerationLog
from engine.store.catalog import Catalog
from engine.store.opening import Store
from engine.store.states import ItemState

POLL_S = 0.25


class NotCurrentError(OperatorError):
    """What was published did not become current before the deadline. It still may, later."""

    code = "octavo_not_current"
    retryable = True


@dataclass(frozen=True, slots=True)
class Selection:
    """Which items: those named, else every item of a base, else every item of an active base."""

    items: tuple[ItemId, ...] = ()
    base: BaseId | None = None

    def states(self, newest: Catalog) -> tuple[ItemState, ...]:
        """Return the items' states, by item id; archived items only when named.

        Raises:
            NotFoundError: a named item or base does not exist.
        """
        if self.items:
            return tuple(_existing(newest, item) for item in sorted(set(self.items)))
        if self.base is not None and newest.base(self.base) is None:
            raise NotFoundError(f"there is no base {self.base}")
        found = (item for item in newest.items() if self._covers(newest, item))
        return tuple(sorted(found, key=lambda item: item.item_id))

    def _covers(self, newest: Catalog, item: ItemState) -> bool:
        if item.status == "archived":
            return False
        if self.base is not None:
            return item.base_id == self.base
        owner = newest.base(item.base_id)
        return owner is not None and owner.active


def _existing(newest: Catalog, item: ItemId) -> ItemState:
    state = newest.item(item)
    if state is None:
        raise NotFoundError(f"there is no item {item}")
    return state


def publish(
    store: Store,
    selection: Selection,
    revision: RevisionId | None = None,
    expected_version: int | None = None,
) -> int:
    """Publish items: `revision`, or each item's newest.

    Returns:
        How many items were published; one whose newest revision is published already is left as
        it is, and counted too. Of a base, items whose newest revision was withdrawn are left out.

    Raises:
        NotFoundError: an item, base or revision does not exist.
        StaleVersionError: an item has another version than expected.
    """
    newest = store.catalog.poll()
    states = selection.states(newest)
    if not selection.items:  # whoever names an item is told that its newest revision was withdrawn
        states = tuple(s for s in states if not newest.withdrawn(s.item_id, s.head_revision))
    changed = [
        state.item_id
        for state in states
        if state.status != "published"
        or state.desired_revision != (revision or state.head_revision)
        or expected_version is not None
    ]
    if changed:
        store.writer.publish(changed, revision, expected_version)
    return len(states)


def unpublish(store: Store, selection: Selection, expected_version: int | None = None) -> int:
    """Take published items back to draft; return how many were chosen."""
    states = selection.states(store.catalog.poll())
    changed = [state.item_id for state in states if state.status == "published"]
    if changed:
        store.writer.unpublish(changed, expected_version)
    return len(changed)


def archive_items(store: Store, selection: Selection, expected_version: int | None = None) -> int:
    """Archive items; return how many were not archived before."""
    states = selection.states(store.catalog.poll())
    changed = [state.item_id for state in states if state.status != "archived"]
    for item in changed:
        store.writer.archive_item(item, expected_version)
    return len(changed)


def archive_base(store: Store, base: BaseId, expected_version: int | None = None) -> None:
    """Archive a base with all it holds."""
    store.writer.archive_base(base, expected_version)


def withdraw(store: Store, item: ItemId, revision: RevisionId) -> None:
    """Withdraw one revision: it cannot be read by pin any more."""
    store.writer.withdraw(item, revision)


class Waiting:
    """Waits until what was published is current in the newest generation."""

    def __init__(self, store: Store, selection: Selection) -> None:
        """Take what to wait for: the revisions that are desired now."""
        self._reader = store.catalog
        self._log = GenerationLog(store.storage)
        self._desired = {
            state.item_id: state.desired_revision
            for state in selection.states(self._reader.poll())
            if state.status == "published"
        }

    def missing(self) -> tuple[ItemId, ...]:
        """Return the items that are not current yet, of those that still are to be."""
        newest = self._log.newest()
        number = 0 if newest is None else newest.number
        return tuple(self._missing(self._reader.poll(), number))

    def _missing(self, newest: Catalog, generation: int) -> Iterator[ItemId]:
        for item, revision in self._desired.items():
            state = newest.item(item)
            if state is None or state.status != "published" or state.desired_revision != revision:
                continue  # overtaken
            withdrawn = revision is None or newest.withdrawn(item, revision)
            if not withdrawn and newest.current_at(item, generation) != revision:
                yield item

    def wait(self, deadline_s: float | None) -> None:
        """Return when nothing is missing; a revision overtaken by another is not waited for.

        Args:
            deadline_s: how long to wait at most, in seconds; None: for ever.

        Raises:
            NotCurrentError: the deadline passed.
        """
        started = time.monotonic()
        while missing := self.missing():
            waited_s = time.monotonic() - started
            if deadline_s is not None and waited_s >= deadline_s:
                raise NotCurrentError(
                    f"{len(missing)} items are not current after {waited_s:.1f} s: "
                    "run `octavo reindex`; what was published stays published"
                )
            time.sleep(POLL_S)
