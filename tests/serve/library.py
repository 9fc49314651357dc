"""A reference for `Answers`, in memory: what the doors are tested on without an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.authorization import Principal, require_operate, require_read
from engine.contract import SearchRequest, Window, parse_request, render_search, render_window
from engine.errors import (
    EngineError,
    InvalidRequestError,
    ResourceUnavailableError,
    RuntimeDisabledError,
)
from engine.ids import BaseId, ItemId, RevisionId, content_sha256
from engine.search.explain import render_explanation
from engine.search.ranking import Ranking


@dataclass
class Library:
    """Holds texts by item id, each with one revision `r1`; remembers who asked.

    Attributes:
        texts: item id to text.
        enabled: the runtime switch.
        is_ready: what `ready` says.
        failure: raised by every call, when set.
        callers: the principals of all calls.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    is_ready: bool = True
    failure: Exception | None = None
    callers: list[Principal] = field(default_factory=list)

    async def answer(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        self._admit(principal)
        request = parse_request(arguments)
        if isinstance(request, SearchRequest):
            return render_search(())
        text = self.texts.get(request.item)
        if text is None or request.revision not in (None, "r1"):
            raise ResourceUnavailableError
        return render_window(
            Window(
                owner="alice",
                team=None,
                scope="public",
                base=BaseId("kb"),
                item=ItemId(request.item),
                revision=RevisionId("r1"),
                title="Title",
                content=text[request.offset : request.offset + request.limit_chars],
                content_sha256=content_sha256(text),
                language="en",
                source_type="file",
                source_ref="a.md",
                offset=request.offset,
                limit_chars=request.limit_chars,
                total_chars=len(text),
            )
        )

    async def explain(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        self._admit(principal)
        require_operate(principal)
        request = parse_request(arguments)
        if not isinstance(request, SearchRequest):
            raise InvalidRequestError("only a search can be explained")
        if request.base not in (None, "kb"):
            raise ResourceUnavailableError
        return render_explanation(request, Ranking(()))

    def _admit(self, principal: Principal) -> None:
        self.callers.append(principal)
        if self.failure is not None:
            raise self.failure
        if not self.enabled:
            raise RuntimeDisabledError
        require_read(principal)

    async def ready(self) -> bool:
        if isinstance(self.failure, EngineError):
            raise self.failure
        return self.is_ready
