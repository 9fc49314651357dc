"""The token file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from engine.authorization import Principal
from engine.errors import ConfigurationError, OverloadedError
from serve.auth.credentials import hash_token
from serve.auth.tokens import StaticTokens, make_token, parse_tokens
from tests.serve.auth.clock import Clock


def _write(path: Path, *entries: dict[str, object]) -> None:
    path.write_text(yaml.safe_dump({"tokens": list(entries)}), "utf-8")


async def test_a_token_stands_for_the_principal_of_its_entry(tmp_path: Path) -> None:
    token, entry = make_token("alice", teams=["red"], scopes=["knowledge:*"], organization="acme")
    _write(tmp_path / "tokens.yaml", entry)

    found = await StaticTokens(tmp_path / "tokens.yaml").principal(token)

    assert found == Principal(
        subject="alice",
        teams=frozenset({"red"}),
        scopes=frozenset({"knowledge:*"}),
        organization="acme",
    )


async def test_only_the_exact_token_is_accepted(tmp_path: Path) -> None:
    token, entry = make_token("alice")
    _write(tmp_path / "tokens.yaml", entry)
    tokens = StaticTokens(tmp_path / "tokens.yaml")

    wrong = ["", token[:-1], token + "x", token.upper(), hash_token(token), "x" * 10_000, "\udc80"]

    assert [await tokens.principal(each) for each in wrong] == [None] * len(wrong)


def test_the_entry_holds_the_hash_and_not_the_token() -> None:
    token, entry = make_token("alice")
    assert entry["sha256"] == hash_token(token)
    assert token not in json.dumps(entry)


def test_two_tokens_differ() -> None:
    assert make_token("alice")[0] != make_token("alice")[0]


def test_a_token_without_a_subject_is_not_made() -> None:
    with pytest.raises(ConfigurationError, match="subject"):
        make_token("")


async def test_a_json_file_is_read_too(tmp_path: Path) -> None:
    token, entry = make_token("alice")
    (tmp_path / "tokens.json").write_text(json.dumps({"tokens": [entry]}), "utf-8")
    assert await StaticTokens(tmp_path / "tokens.json").principal(token) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tokens: {",
        "[]",
        "other: []",
        "tokens: [{}]",
        "tokens: [{sha256: abc, subject: a}]",
        f"tokens: [{{sha256: {'0' * 64}}}]",
        f"tokens: [{{sha256: {'0' * 64}, subject: ''}}]",
        f"tokens: [{{sha256: {'0' * 64}, subject: a, token: secret}}]",
    ],
)
def test_a_file_of_another_shape_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^tokens\.yaml: "):
        parse_tokens(text, "tokens.yaml")


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        StaticTokens(tmp_path / "tokens.yaml")


async def test_a_changed_file_is_read_again_after_a_second(tmp_path: Path) -> None:
    first, first_entry = make_token("alice")
    second, second_entry = make_token("bob")
    path, clock = tmp_path / "tokens.yaml", Clock()
    _write(path, first_entry)
    tokens = StaticTokens(path, clock=clock)
    _write(path, first_entry, second_entry)

    assert await tokens.principal(second) is None
    clock.now += 1.0
    assert await tokens.principal(second) is not None
    assert await tokens.principal(first) is not None


async def test_a_removed_token_is_refused_after_a_second(tmp_path: Path) -> None:
    token, entry = make_token("alice")
    path, clock = tmp_path / "tokens.yaml", Clock()
    _write(path, entry)
    tokens = StaticTokens(path, clock=clock)
    _write(path)
    clock.now += 1.0

    assert await tokens.principal(token) is None


@pytest.mark.parametrize("broken", ["tokens: {", "", None])
async def test_a_file_turned_bad_accepts_nothing_after_a_second_and_refuses_nothing(
    tmp_path: Path, broken: str | None
) -> None:
    token, entry = make_token("alice")
    path, clock = tmp_path / "tokens.yaml", Clock()
    _write(path, entry)
    tokens = StaticTokens(path, clock=clock)
    if broken is None:
        path.unlink()
    else:
        path.write_text(broken, "utf-8")
    clock.now += 1.0

    for given in (token, "another"):
        with pytest.raises(OverloadedError):
            await tokens.principal(given)

    _write(path)
    clock.now += 1.0
    assert await tokens.principal(token) is None


@pytest.mark.parametrize("names", [{"subject": "corp#alice"}, {"subject": "a", "teams": ["c#d"]}])
def test_a_name_of_an_issuer_cannot_be_had_by_the_token_file(names: dict[str, object]) -> None:
    text = yaml.safe_dump({"tokens": [{"sha256": "0" * 64, **names}]})
    with pytest.raises(ConfigurationError, match="qualifies the names of issuers"):
        parse_tokens(text, "tokens.yaml")


def test_a_token_for_a_name_of_an_issuer_is_not_made() -> None:
    with pytest.raises(ConfigurationError, match="issuers"):
        make_token("corp#alice")
    with pytest.raises(ConfigurationError, match="issuers"):
        make_token("alice", teams=["corp#red"])
