"""Prints the SHA-256 of many answers of one store: a restart must print the same.

`python -m tests.engine.search.replaying ROOT ENCODER` with `hashing` or `default`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import orjson

from engine.authorization import OPERATOR, Principal
from engine.config import Config, EncoderConfig
from engine.local import open_local
from engine.search.answering import Knowledge
from tests.engine.search.building import small_config
from tests.engine.search.texts import QUERIES

MODES = ("hybrid", "lexical", "semantic", "rrf")
STRANGER = Principal("stranger", scopes=frozenset({"knowledge:read"}))
LONG = " ".join(QUERIES) + " " + "数据库备份恢复和证书轮换的服务器" * 200
"""Longer than the window of any encoder here, within what a query may hold."""

LONG_QUERY = LONG[:4000]
ASKED = (*QUERIES, LONG_QUERY)


def config_of(root: Path, encoder: str) -> Config:
    """Return the configuration of a small store with one of two encoders."""
    config = small_config(root)
    if encoder == "hashing":
        return config
    return config.model_copy(update={"encoder": EncoderConfig()})


async def answers(
    knowledge: Knowledge, queries: Sequence[str] = ASKED
) -> AsyncIterator[tuple[str, bytes]]:
    """Yield (question, bytes of the answer), question by question."""
    for query in queries:
        for mode in MODES:
            for principal in (OPERATOR, STRANGER):
                arguments = {"query": query, "mode": mode, "max_results": 20}
                found = await knowledge.answer(arguments, principal)
                yield f"{principal.subject} {mode} {query}", orjson.dumps(found)


async def digest_of(knowledge: Knowledge) -> str:
    """Return the SHA-256 of all answers, one after the other."""
    state = hashlib.sha256()
    async for _, answer in answers(knowledge):
        state.update(answer)
    return state.hexdigest()


async def _main(root: Path, encoder: str) -> str:
    knowledge = open_local(config_of(root, encoder))
    digest = await digest_of(knowledge)
    await knowledge.close()
    return digest


def restarted(root: Path, encoder: str, hash_seeds: Sequence[int]) -> list[str]:
    """Return what other processes print, each with its own PYTHONHASHSEED, all at once."""
    command = [sys.executable, "-m", __name__, str(root), encoder]
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in hash_seeds
    ]
    printed = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return printed


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(_main(Path(sys.argv[1]), sys.argv[2])))
