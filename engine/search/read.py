"""Addressed reads: one exact item, in a bounded window.

Every refusal is decided from the catalog in memory, before anything is read: what does not exist
and what may not be read cost the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.authorization import Principal
from engine.contract import ReadRequest, Window
from engine.errors import ResourceUnavailableError
from engine.ids import ItemId, RevisionId
from engine.search.cache import BoundedCache
from engine.search.views import Access, CatalogViews
from engine.store.catalog import BaseState, Catalog
from engine.store.revisions import Revision, Revisions

_KEPT_CHARS = 20_000_000

PinnedGeneration = Callable[[], Awaitable[int | None]]
"""Return the generation that searches are answered from now, or None."""


class Reader:
    """Reads revisions that a caller may read. Keeps recently read texts, for paging."""

    def __init__(
        self,
        revisions: Revisions,
        views: CatalogViews,
        access: Access,
        generation: PinnedGeneration,
    ) -> None:
        """Join the parts.

        Args:
            revisions: the texts.
            views: the catalog.
            access: who may read which base.
            generation: decides what the current revision is, for reads as for searches.
        """
        self._revisions = revisions
        self._views = views
        self._access = access
        self._generation = generation
        self._texts: BoundedCache[tuple[ItemId, RevisionId], Revision] = BoundedCache(
            _KEPT_CHARS, lambda revision: len(revision.content)
        )

    async def read(self, request: ReadRequest, principal: Principal) -> Window:
        """Return a window of one revision.

        Raises:
            ResourceUnavailableError: missing, foreign, inactive, unpublished or mismatched.
            OverloadedError: the catalog could not be confirmed in time.
        """
        generation = await self._generation()
        catalog = await self._views.fresh()
        base, revision_id = self._address(request, principal, catalog, generation)
        revision = await self._revision(request.item, revision_id)
        pinned = ReadRequest(request.item, revision_id, request.base)
        base, _ = self._address(pinned, principal, await self._views.fresh(), generation)
        content = revision.content[request.offset : request.offset + request.limit_chars]
        return Window(
            owner=base.owner,
            team=base.team,
            scope=base.scope,
            base=base.base_id,
            item=request.item,
            revision=revision_id,
            title=revision.title,
            content=content,
            content_sha256=revision.content_sha256,
            language=revision.language,
            source_type=revision.source_type,
            source_ref=revision.source_ref,
            offset=request.offset,
            limit_chars=request.limit_chars,
            total_chars=len(revision.content),
        )

    def _address(
        self,
        request: ReadRequest,
        principal: Principal,
        catalog: Catalog,
        generation: int | None,
    ) -> tuple[BaseState, RevisionId]:
        """Decide what is read, from memory alone, or refuse."""
        item = catalog.item(request.item)
        base = None if item is None else catalog.base(item.base_id)
        readable = self._access.bases(catalog, principal)
        revision = request.revision
        if revision is None and generation is not None:
            revision = catalog.current_revision(request.item, generation)
        allowed = (
            base is not None
            and base.base_id in readable
            and request.base in (None, base.base_id)
            and revision is not None
            and catalog.readable_pin(request.item, revision)
        )
        if not allowed or base is None or revision is None:
            raise ResourceUnavailableError
        return base, revision

    async def _revision(self, item: ItemId, revision: RevisionId) -> Revision:
        known = self._texts.get((item, revision))
        if known is not None:
            return known
        found = await asyncio.to_thread(self._revisions.read, item, revision)
        if found is None:
            raise ResourceUnavailableError
        self._texts.put((item, revision), found)
        return found
