"""The contract's runtime switch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contracts.callers import asked_by
from tests.contracts.conftest import Call
from tests.engine.search.building import Library

DISABLED = {
    "type": "knowledge_unavailable",
    "error": {
        "code": "knowledge_runtime_disabled",
        "message": "the knowledge runtime is disabled",
    },
}


async def _until(call: Call, arguments: dict[str, Any], *, disabled: bool) -> None:
    """Ask until the switch is noticed; a door may remember it for a quarter of a second."""
    async with asyncio.timeout(60):
        while True:
            payload, _ = await call(arguments)
            if (payload == DISABLED) == disabled:
                return


@pytest.mark.parametrize(
    "arguments",
    [{"query": "server"}, {"knowledge_item_id": "long"}, {}, {"unknown": 1}],
)
async def test_a_disabled_runtime_answers_nothing_else(
    call: Call, library: Library, arguments: dict[str, Any]
) -> None:
    library.store.runtime.set(False)
    try:
        await _until(call, arguments, disabled=True)
        assert await call(arguments) == (DISABLED, True)
    finally:
        library.store.runtime.set(True)
        await _until(call, {"query": "server"}, disabled=False)


@asked_by("scopeless")
async def test_the_switch_is_checked_before_the_scope(call: Call, library: Library) -> None:
    library.store.runtime.set(False)
    try:
        await _until(call, {"query": "server"}, disabled=True)
    finally:
        library.store.runtime.set(True)
        await _until(call, {"query": "server"}, disabled=False)
