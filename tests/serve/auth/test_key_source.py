"""The keys of an issuer: rotation, outages, storms of unknown key ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial

import pytest

from engine.access_config import IssuerConfig
from engine.errors import OverloadedError
from serve.auth.fetching import MAX_BYTES, KeyServiceError, described_keys_url, fetch_keys
from serve.auth.key_source import MAX_WAITING, KeySource, Patience
from serve.auth.keys import Key
from tests.serve.auth.clock import Clock
from tests.serve.auth.issuer import Issuer, running_issuer

DISCOVERY = "/.well-known/openid-configuration"
PATIENCE = Patience(refresh_s=300, max_age_s=86_400, cooldown_s=30)


def _config(issuer: Issuer, **changes: object) -> IssuerConfig:
    return IssuerConfig.model_validate(issuer.config(jwks_url=f"{issuer.url}/jwks", **changes))


def _source(issuer: Issuer, clock: Clock, patience_s: float = 30.0) -> KeySource:
    fetch = partial(fetch_keys, _config(issuer), patience_s)
    return KeySource("corp", fetch, PATIENCE, clock=clock)


async def _settle() -> None:
    """Wait for the fetches that run beside."""
    beside = asyncio.all_tasks() - {asyncio.current_task()}
    if beside:
        await asyncio.wait(beside)


async def test_keys_are_fetched_once_for_many_askers(issuer: Issuer) -> None:
    source = _source(issuer, Clock())
    found = await asyncio.gather(*(source.matching("ES256", "ES256") for _ in range(50)))
    assert {len(keys) for keys in found} == {1}
    assert issuer.fetched == ["/jwks"]


async def test_a_bounded_number_of_requests_waits_for_a_fetch() -> None:
    published = asyncio.Event()

    async def fetch() -> tuple[Key, ...]:
        await published.wait()
        return ()

    source = KeySource("corp", fetch, PATIENCE, clock=Clock())
    waiting = [asyncio.create_task(source.matching("x", "ES256")) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)  # each begins, and waits
    with pytest.raises(OverloadedError):
        await source.matching("x", "ES256")
    published.set()
    assert set(await asyncio.gather(*waiting)) == {()}
    assert await source.matching("x", "ES256") == ()


async def test_a_new_key_is_found_as_soon_as_a_token_names_it(issuer: Issuer) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    assert len(await source.matching("ES256", "ES256")) == 1
    issuer.publish("ES256", "next")
    clock.now += 30
    assert len(await source.matching("next", "ES256")) == 1
    assert len(issuer.fetched) == 2


async def test_a_storm_of_unknown_key_ids_causes_one_fetch_in_a_cool_down(issuer: Issuer) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    await source.keys()
    for step in range(5):
        clock.now += 30
        asked = [source.matching(f"invented-{step}-{number}", "ES256") for number in range(200)]
        assert set(await asyncio.gather(*asked)) == {()}
        assert len(issuer.fetched) == 2 + step


async def test_an_algorithm_that_no_key_fits_is_an_unknown_key(issuer: Issuer) -> None:
    source = _source(issuer, Clock())
    assert await source.matching("ES256", "RS256") == ()
    assert await source.matching(None, "EdDSA") == ()


async def test_a_token_that_names_no_key_is_tried_with_all_that_fit(issuer: Issuer) -> None:
    issuer.publish("ES256", "second", kid=None)
    issuer.publish("EdDSA")
    assert len(await _source(issuer, Clock()).matching(None, "ES256")) == 2


async def test_an_outage_is_not_noticed_while_keys_are_cached(issuer: Issuer) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    keys = await source.keys()
    issuer.replies["/jwks"] = (500, {}, b"")
    for _ in range(100):
        clock.now += 860
        assert await source.keys() == keys
        await _settle()
    assert len(issuer.fetched) == 101


async def test_keys_are_not_used_for_ever_without_their_issuer(issuer: Issuer) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    await source.keys()
    issuer.replies["/jwks"] = (500, {}, b"")
    clock.now += PATIENCE.max_age_s
    with pytest.raises(OverloadedError):
        await source.keys()
    del issuer.replies["/jwks"]
    clock.now += 30
    assert len(await source.keys()) == 1


async def test_an_unknown_key_id_during_an_outage_is_not_called_invalid(issuer: Issuer) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    await source.keys()
    issuer.replies["/jwks"] = (500, {}, b"")
    clock.now += 30
    with pytest.raises(OverloadedError):
        await source.matching("next", "ES256")
    with pytest.raises(OverloadedError):
        await source.matching("next", "ES256")
    assert len(issuer.fetched) == 2


async def test_after_failures_the_service_is_asked_less_and_less_often(issuer: Issuer) -> None:
    issuer.replies["/jwks"] = (500, {}, b"")
    clock = Clock()
    source = _source(issuer, clock)
    waits, asked_at = [], clock.now
    for _ in range(8):
        before = len(issuer.fetched)
        while len(issuer.fetched) == before:
            with pytest.raises(OverloadedError) as caught:
                await source.keys()
            assert 1.0 <= caught.value.retry_after_s <= PATIENCE.cooldown_s
            if len(issuer.fetched) == before:
                clock.now += 0.5
        waits.append(clock.now - asked_at)
        asked_at = clock.now
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30]


async def test_a_key_that_was_taken_back_is_gone_after_twice_the_refresh(issuer: Issuer) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    await source.keys()
    issuer.publish("ES256", "next")
    issuer.keys.pop(0)
    clock.now += 2 * PATIENCE.refresh_s
    assert [key.key_id for key in await source.keys()] == ["next"]


@pytest.mark.parametrize("left", [[], [{"kty": "oct", "k": "AAAA"}], [1, {}]])
async def test_an_issuer_may_take_all_its_keys_back(issuer: Issuer, left: list[object]) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    await source.keys()
    issuer.replies["/jwks"] = (200, {}, json.dumps({"keys": left}).encode())
    clock.now += 2 * PATIENCE.refresh_s
    assert await source.keys() == ()
    assert await source.matching("ES256", "ES256") == ()


async def test_a_fault_of_ours_does_not_make_every_request_fetch() -> None:
    fetched = 0

    async def fetch() -> tuple[Key, ...]:
        nonlocal fetched
        fetched += 1
        raise ZeroDivisionError

    source = KeySource("corp", fetch, PATIENCE, clock=Clock())
    for _ in range(5):
        with pytest.raises(OverloadedError):
            await source.keys()
    assert fetched == 1


async def test_a_refresh_runs_beside_the_requests(issuer: Issuer) -> None:
    clock = Clock()
    source = _source(issuer, clock)
    before = await source.keys()
    issuer.publish("ES256", "next")
    issuer.held.clear()  # the key service hangs
    clock.now += PATIENCE.refresh_s
    assert await source.keys() == before
    issuer.held.set()
    assert len(await source.matching("next", "ES256")) == 1  # joins the fetch that runs
    assert len(issuer.fetched) == 2


async def test_who_stops_waiting_does_not_end_the_fetch_of_others(issuer: Issuer) -> None:
    issuer.held.clear()
    source = _source(issuer, Clock())
    first = asyncio.create_task(source.keys())
    second = asyncio.create_task(source.keys())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    issuer.held.set()
    assert len(await second) == 1
    assert issuer.fetched == ["/jwks"]


async def test_a_slow_key_service_is_given_up(issuer: Issuer) -> None:
    issuer.held.clear()
    with pytest.raises(KeyServiceError, match="did not answer within"):
        await fetch_keys(_config(issuer), 0.05)


async def test_a_service_that_is_gone_is_named() -> None:
    with running_issuer() as issuer:
        config = _config(issuer)
    with pytest.raises(KeyServiceError, match="ConnectError"):
        await fetch_keys(config, 30)


@pytest.mark.parametrize(
    ("status", "headers", "body", "reason"),
    [
        (200, {}, b"garbage", "JSON object"),
        (200, {}, b"[]", "JSON object"),
        (200, {}, b"\xff", "JSON object"),
        (200, {}, b'{"keys": [], "keys": []}', "JSON object"),
        (200, {}, b'{"keys": ' + b"[" * 60_000 + b"]" * 60_000 + b"}", "JSON object"),
        (200, {}, b"{}", "not a JWK set"),
        (200, {}, b'{"keys": {}}', "not a JWK set"),
        (200, {}, b" " * (MAX_BYTES + 1), "more than"),
        (200, {"content-encoding": "gzip"}, b"{}", "encoded"),
        (404, {}, b"{}", "status 404"),
        (500, {}, b"{}", "status 500"),
        (302, {"location": "/elsewhere"}, b"", "status 302"),
    ],
)
async def test_an_answer_that_is_no_key_set_is_refused(
    issuer: Issuer, status: int, headers: Mapping[str, str], body: bytes, reason: str
) -> None:
    issuer.replies["/jwks"] = (status, headers, body)
    with pytest.raises(KeyServiceError, match=reason):
        await fetch_keys(_config(issuer), 30)
    assert issuer.fetched == ["/jwks"]  # no redirect was followed


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'{"issuer": "https://evil.example", "jwks_uri": "https://evil.example"}', "another"),
        (b'{"issuer": "ISSUER"}', "secure jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": 7}', "secure jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": "http://192.0.2.7/jwks"}', "secure jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}', "secure jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": "https://u:p@kb.example/"}', "secure jwks_uri"),
    ],
)
async def test_a_discovery_document_is_believed_only_of_this_issuer_and_securely(
    issuer: Issuer, document: bytes, reason: str
) -> None:
    issuer.replies[DISCOVERY] = (200, {}, document.replace(b"ISSUER", issuer.url.encode()))
    config = IssuerConfig.model_validate(issuer.config())
    with pytest.raises(KeyServiceError, match=reason):
        await fetch_keys(config, 30)
    assert issuer.fetched == [DISCOVERY]


@pytest.mark.parametrize("inside", ["http://127.0.0.1:9200/", "http://localhost/", "http://[::1]/"])
def test_an_issuer_elsewhere_cannot_have_this_machine_ask_itself(inside: str) -> None:
    issuer = "https://login.example"
    with pytest.raises(KeyServiceError, match="secure jwks_uri"):
        described_keys_url({"issuer": issuer, "jwks_uri": inside}, issuer, "discovery")
