"""What is refused before anything is started. The start itself: test_server.py."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from engine.config import Config, parse_config
from engine.errors import ConfigurationError, JavaError, OperatorError, StoreError
from engine.store.opening import create_store
from serve.launcher import absolute, await_ready, check_configuration, spawn, url_of
from serve.runtime import free_port, prepare, require_free_port


@pytest.fixture(autouse=True)
def in_a_folder_with_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create_store("store")


def _config(**serve: object) -> Config:
    return parse_config({"root": "store", "serve": {"port": free_port(), **serve}})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "kb.example"])
def test_without_tokens_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(ConfigurationError, match="give a token file"):
        check_configuration(_config(host=host), None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_needs_no_tokens(host: str) -> None:
    check_configuration(_config(host=host), None)


def test_a_bad_token_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text("tokens: [{}]", "utf-8")
    with pytest.raises(ConfigurationError, match=r"tokens\.yaml: tokens\.0\.sha256"):
        check_configuration(_config(), path)


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            check_configuration(_config(port=port), None)
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port}: address already in use; choose another port"
    )


def test_an_address_of_another_machine_is_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r"^cannot listen on 192\.0\.2\.77:80: .+"):
        require_free_port("192.0.2.77", 80)


def test_a_missing_store_is_refused_before_anything_starts() -> None:
    with pytest.raises(StoreError, match="no store at"):
        check_configuration(_config().model_copy(update={"root": "elsewhere"}), None)


def test_a_missing_java_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(JavaError, match="Java 21"):
        check_configuration(_config(), None)


def test_nothing_is_spawned_for_a_port_in_use(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(ConfigurationError, match="cannot listen"),
    ):
        spawn(_config(port=listener.getsockname()[1]), log=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_process_that_uses_ray_cannot_host_the_server() -> None:
    import ray  # noqa: F401  imported for its presence

    with pytest.raises(ConfigurationError, match="in its own"):
        prepare(Config())


def test_waiting_for_a_server_that_ended_says_so() -> None:
    with pytest.raises(OperatorError, match="ended while starting"):
        await_ready(f"http://127.0.0.1:{free_port()}", lambda: False)


def test_waiting_has_an_end() -> None:
    with pytest.raises(OperatorError, match="did not get ready within 0 s"):
        await_ready(f"http://127.0.0.1:{free_port()}", lambda: True, patience_s=0.0)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("localhost", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("kb.example", "http://kb.example:8000"),
    ],
)
def test_the_url_can_be_opened_on_this_machine(host: str, url: str) -> None:
    assert url_of(parse_config({"serve": {"host": host}})) == url


def test_a_root_is_absolute_for_workers_and_a_uri_stays() -> None:
    assert absolute("store") == str(Path.cwd() / "store")
    assert absolute("s3://bucket/store") == "s3://bucket/store"
