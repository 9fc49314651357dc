"""The deny list."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.authorization import Principal
from engine.errors import ConfigurationError, OverloadedError
from serve.auth.credentials import Verified, hash_token
from serve.auth.denied import DenyList, parse_denied
from tests.serve.auth.clock import Clock

ALICE = Verified(Principal(subject="corp#alice"), frozenset({hash_token("t")}), "id-1")


@pytest.mark.parametrize(
    "line",
    ['subjects: ["corp#alice"]', "token_ids: [id-1]", f"token_hashes: [{hash_token('t')}]"],
)
def test_a_subject_a_token_id_or_a_token_can_be_denied(line: str) -> None:
    assert parse_denied(line, "deny.yaml").holds(ALICE)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "subjects: [alice, 'other#alice', 'corp#ALICE', corp, 'corp#alice2']",
        "token_ids: [corp#id-1, id-2]",
        f"token_hashes: [{hash_token('u')}]",
    ],
)
def test_nobody_else_is_denied(line: str) -> None:
    assert not parse_denied(line, "deny.yaml").holds(ALICE)


def test_a_token_without_an_id_is_not_denied_by_one() -> None:
    verified = Verified(Principal(subject="alice"), frozenset({hash_token("t")}))
    assert not parse_denied("token_ids: [id-1]", "deny.yaml").holds(verified)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "subjects: alice", "subjects: ['']", "token_hashes: [abc]", "subject: [a]", "a: {"],
)
def test_a_list_of_another_shape_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^deny\.yaml: "):
        parse_denied(text, "deny.yaml")


def test_of_two_lists_of_subjects_none_is_lost() -> None:
    with pytest.raises(ConfigurationError, match="is not YAML"):
        parse_denied("subjects: [mallory]\nsubjects: [bob]\n", "deny.yaml")


@pytest.mark.parametrize(
    "scalar", ["2001-99-99", "!!int x", "!!bool x", "!!timestamp x", "!!float x", '"\\uD800"']
)
def test_a_scalar_that_is_not_what_it_looks_like_is_refused_by_name(scalar: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^deny\.yaml: "):
        parse_denied(f"subjects: [{scalar}]", "deny.yaml")


async def test_an_addition_counts_within_a_second(tmp_path: Path) -> None:
    path, clock = tmp_path / "deny.yaml", Clock()
    path.write_text("{}", "utf-8")
    denied = DenyList(path, clock=clock)
    assert not await denied.holds(ALICE)
    path.write_text("token_ids: [id-1]", "utf-8")
    clock.now += 1.0
    assert await denied.holds(ALICE)


@pytest.mark.parametrize("broken", ["", "subjects: {", None])
async def test_a_list_that_cannot_be_read_lets_nobody_in(
    tmp_path: Path, broken: str | None
) -> None:
    path, clock = tmp_path / "deny.yaml", Clock()
    path.write_text("{}", "utf-8")
    denied = DenyList(path, clock=clock)
    if broken is None:
        path.unlink()
    else:
        path.write_text(broken, "utf-8")
    clock.now += 1.0
    with pytest.raises(OverloadedError):
        await denied.holds(ALICE)
