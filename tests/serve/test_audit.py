"""The audit trail: what a record holds, what it never holds, and where it goes."""

from __future__ import annotations

import io
import json
import logging
import logging.handlers
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from engine.config import Config, parse_config
from engine.errors import ConfigurationError, StoreError
from serve.audit import NAME, Trail, audit_path, close_audit, open_audit
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app
from serve.visit import Visit
from tests.serve.library import Library

SECRET = "private words of a query"
JSON = {"content-type": "application/json"}


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "audit.jsonl"
    open_audit(parse_config({"audit": {"destination": str(path)}}), credentials=True)
    yield path
    close_audit()


@pytest.fixture
def token(tmp_path: Path) -> tuple[str, StaticTokens]:
    token, entry = make_token("alice")
    path = tmp_path / "tokens.yaml"
    path.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    return token, StaticTokens(path)


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def _ask(
    library: Library,
    credentials: tuple[str, StaticTokens],
    method: str,
    path: str,
    counted: list[tuple[str, str]] | None = None,
    **request: Any,
) -> httpx2.Response:
    counts = counted if counted is not None else []
    trail = Trail(lambda kind, outcome: counts.append((kind, outcome)))
    app = build_app(library, Config(), credentials[1], trail)
    headers = {"authorization": f"Bearer {credentials[0]}", **request.pop("headers", {})}
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8000"
        ) as client,
    ):
        return await client.request(method, path, headers=headers, **request)


async def test_a_read_is_recorded_with_who_what_and_how_it_ended(
    library: Library, token: tuple[str, StaticTokens], trail: Path
) -> None:
    counted: list[tuple[str, str]] = []
    response = await _ask(library, token, "GET", "/v1/items/a", counted)
    (record,) = _records(trail)
    assert record["request"] == response.headers["octavo-request-id"]
    assert (record["subject"], record["kind"], record["outcome"]) == ("alice", "read", "ok")
    assert (record["method"], record["status"]) == ("GET", 200)
    assert record["asked"] == {"knowledge_item_id": "a"}
    assert record["answered"] == [
        {
            "knowledge_base_id": "kb",
            "knowledge_item_id": "a",
            "knowledge_revision_id": "r1",
        }
    ]
    assert record["latency_ms"] >= 0
    assert counted == [("read", "ok")]


async def test_no_record_holds_a_query_a_text_a_title_or_a_token(
    library: Library, token: tuple[str, StaticTokens], trail: Path
) -> None:
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/v1/search", {"json": {"query": SECRET}}),
        ("POST", "/v1/search", {"json": {"query": "a", "knowledge_base_id": SECRET + "\n"}}),
        ("POST", "/v1/search", {"json": {"query": "a", SECRET: 1}}),
        (
            "POST",
            "/v1/search",
            {"content": SECRET, "headers": {"content-type": "application/json"}},
        ),
        ("GET", f"/v1/items/a?{SECRET}=1", {}),
        ("GET", "/v1/items/a", {}),
        ("GET", "/v1/items/a", {"headers": {"authorization": f"Bearer {SECRET}"}}),
        ("GET", "/v1/items/a", {"headers": {"host": SECRET.replace(" ", "-")}}),
        ("GET", "/v1/" + SECRET, {}),
        ("POST", "/mcp", {"json": {"method": SECRET}}),
    ]
    for method, path, request in calls:
        await _ask(library, token, method, path, **request)
    records = _records(trail)
    text = json.dumps(records, ensure_ascii=False)
    assert len(records) == len(calls)
    for secret in (SECRET, SECRET.replace(" ", "-"), "%20words", "0123456789", "Title", token[0]):
        assert secret not in text


async def test_refusals_are_recorded_with_their_reason(
    library: Library, token: tuple[str, StaticTokens], trail: Path
) -> None:
    for headers in (
        {"authorization": "Bearer x"},
        {"authorization": "Basic x"},
        {"host": "evil"},
        {"origin": "https://evil.example"},
    ):
        await _ask(library, token, "GET", "/v1/items/a", headers=headers)
    seen = [
        (each["kind"], each["status"], each.get("subject"), each.get("reason", ""))
        for each in _records(trail)
    ]
    assert seen == [
        ("refused", 401, "", "none given"),
        ("refused", 401, "", "none given"),
        ("refused", 421, "", ""),
        ("refused", 403, "", ""),
    ]


async def test_an_error_is_recorded_by_its_code(
    library: Library, token: tuple[str, StaticTokens], trail: Path
) -> None:
    await _ask(library, token, "GET", "/v1/items/missing")
    await _ask(library, token, "POST", "/v1/search", json={"query": "a", "max_results": 99})
    library.failure = StoreError("secret")
    await _ask(library, token, "GET", "/v1/items/a")
    assert [(each["kind"], each["outcome"]) for each in _records(trail)] == [
        ("read", "knowledge_resource_unavailable"),
        ("search", "knowledge_invalid_request"),
        ("read", "knowledge_internal"),
    ]


async def test_a_fault_in_the_log_names_the_request_of_the_response(
    library: Library,
    token: tuple[str, StaticTokens],
    caplog: pytest.LogCaptureFixture,
) -> None:
    library.failure = StoreError("secret")
    response = await _ask(library, token, "GET", "/v1/items/a")
    (record,) = [each for each in caplog.records if each.name == "serve.door"]
    assert vars(record)["request"] == response.headers["octavo-request-id"]


async def test_health_is_not_recorded(
    library: Library, token: tuple[str, StaticTokens], trail: Path
) -> None:
    await _ask(library, token, "GET", "/healthz")
    assert _records(trail) == []


async def test_a_caller_cannot_choose_its_request_id(
    library: Library, token: tuple[str, StaticTokens], trail: Path
) -> None:
    headers = {"octavo-request-id": "mine", "x-request-id": "mine"}
    response = await _ask(library, token, "GET", "/v1/items/a", headers=headers)
    assert response.headers["octavo-request-id"] != "mine"
    assert _records(trail)[0]["request"] != "mine"


def _write(status: int = 200) -> None:
    Trail().record(Visit(), method="GET", status=status, latency_s=0.0)


def test_only_its_owner_may_read_the_file(trail: Path) -> None:
    _write()
    assert stat.S_IMODE(trail.stat().st_mode) == 0o600


def test_a_rotated_file_is_left_and_a_new_one_begun(trail: Path) -> None:
    _write(200)
    trail.rename(trail.with_suffix(".1"))
    _write(201)
    assert [each["status"] for each in _records(trail)] == [201]
    assert [each["status"] for each in _records(trail.with_suffix(".1"))] == [200]


def test_a_record_that_cannot_be_written_is_reported(
    trail: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (handler,) = [
        each
        for each in logging.getLogger(NAME).handlers
        if isinstance(each, logging.handlers.WatchedFileHandler)
    ]

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handler, "reopenIfNeeded", full)
    _write()
    (record,) = [each for each in caplog.records if each.name == "serve.audit"]
    assert vars(record)["reason"] == "No space left on device"


class _Full(io.BytesIO):
    """A file on a disk that has room for a part of one line."""

    room = 5

    def write(self, data: Any) -> int:
        taken = super().write(bytes(data)[: self.room])
        self.room = 0 if self.room == 5 else 10_000
        return taken


def test_a_line_that_was_cut_by_a_full_disk_spoils_no_other(
    trail: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (handler,) = [
        each
        for each in logging.getLogger(NAME).handlers
        if isinstance(each, logging.handlers.WatchedFileHandler)
    ]
    full = _Full()
    monkeypatch.setattr(handler, "reopenIfNeeded", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(handler, "stream", full)
        for status in (200, 201, 202, 203):
            _write(status)
    lines = full.getvalue().splitlines()
    assert lines[0] == b'{"tim'
    assert [json.loads(line)["status"] for line in lines[1:]] == [202, 203]
    reasons = [vars(each)["reason"] for each in caplog.records if each.name == "serve.audit"]
    assert reasons == ["No space left on device"] * 2


class _Keeping(logging.Handler):
    """Keeps what reaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


def test_records_do_not_reach_other_logs(trail: Path) -> None:
    handler = _Keeping()
    logging.getLogger().addHandler(handler)
    try:
        _write()
    finally:
        logging.getLogger().removeHandler(handler)
    assert handler.kept == []
    assert len(_records(trail)) == 1


@pytest.mark.parametrize(
    ("destination", "credentials", "expected"),
    [
        ("auto", True, "root/logs/audit.jsonl"),
        ("auto", False, None),
        ("off", True, None),
        ("stderr", True, None),
        ("/var/log/audit.jsonl", False, "/var/log/audit.jsonl"),
    ],
)
def test_the_destination_is_as_configured(
    destination: str, credentials: bool, expected: str | None
) -> None:
    config = parse_config({"root": "root", "audit": {"destination": destination}})
    found = audit_path(config, credentials=credentials)
    assert (None if found is None else str(found)) == expected


def test_a_file_that_cannot_be_opened_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    config = parse_config({"audit": {"destination": str(tmp_path / "file" / "audit.jsonl")}})
    with pytest.raises(ConfigurationError, match=r"audit\.destination"):
        open_audit(config, credentials=True)
