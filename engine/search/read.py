"""Addressed reads: one exact item, in a bounded window."""

from __future__ import annotations

from engine.authorization import Principal
from engine.contract import ReadRequest, Window


class Reader:
    """Reads revisions that a caller may read."""

    async def read(self, request: ReadRequest, principal: Principal) -> Window:
        """Return a window of one revision.

        Raises:
            ResourceUnavailableError: missing, foreign, inactive, unpublished or mismatched.
            OverloadedError: the catalog could not be confirmed in time.
        """
        raise NotImplementedError
