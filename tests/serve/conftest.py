"""Fixtures of the doors: an application over the reference library, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
import pytest

from engine.config import Config, parse_config
from serve.auth.credentials import Credentials
from serve.doors import build_app
from tests.serve.library import Library

Connect = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]


@asynccontextmanager
async def connected(
    library: Library, credentials: Credentials | None = None, config: Config | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of an application whose life span runs."""
    app = build_app(library, config or Config(), credentials)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
    ):
        yield client


@pytest.fixture
def library() -> Library:
    return Library(texts={"a": "0123456789", "x/y": "slash", "x%2Fy": "percent", "ü": "umlaut"})


@pytest.fixture
def small() -> Config:
    """Return a configuration with small limits."""
    return parse_config({"serve": {"max_body_bytes": 1024, "max_ongoing_requests": 1}})
