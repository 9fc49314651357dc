"""The log of the server's processes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import Config, parse_config
from serve.logs import log_path, open_log, set_aside_long_log


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    before = {name: list(logging.getLogger(name).handlers) for name in ("engine", "serve")}
    config = parse_config({"root": str(tmp_path)})
    yield config
    for name, handlers in before.items():
        logger = logging.getLogger(name)
        for handler in set(logger.handlers) - set(handlers):
            logger.removeHandler(handler)
            handler.close()


def test_a_fault_is_found_by_its_id(config: Config) -> None:
    open_log(config)
    try:
        raise ValueError("broken")
    except ValueError as error:
        logging.getLogger("serve.door").error("call failed", exc_info=error, extra={"fault": "f1"})

    path = log_path(config)
    assert path is not None
    (line,) = path.read_text("utf-8").splitlines()
    record = json.loads(line)
    assert (record["fault"], record["error"], record["text"]) == ("f1", "ValueError", "broken")
    assert any("test_logs.py" in frame for frame in record["trace"])


def test_warnings_are_kept_and_chatter_is_not(config: Config) -> None:
    open_log(config)
    logging.getLogger("engine.search").warning("shard late", extra={"shard": 3})
    logging.getLogger("engine.search").info("chatter")

    path = log_path(config)
    assert path is not None
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(each["message"], each["shard"]) for each in records] == [("shard late", 3)]


def test_a_long_log_is_set_aside(config: Config) -> None:
    path = log_path(config)
    assert path is not None
    path.parent.mkdir()
    path.write_bytes(b"x" * (10 * 2**20 + 1))
    set_aside_long_log(config)
    assert not path.exists()
    assert path.with_suffix(".jsonl.1").exists()


def test_a_store_elsewhere_has_no_log_file_here() -> None:
    assert log_path(parse_config({"root": "s3://bucket/store"})) is None
