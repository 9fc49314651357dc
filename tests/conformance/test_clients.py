"""Clients of other makers and of both generations list the tool and call it.

Over HTTP with a bearer token, at the product's ASGI stack; and over stdio, as `octavo mcp` on a
real store. Each client makes one good call and one that the contract refuses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from engine.config import dump_config
from serve.auth.tokens import make_token
from tests.conformance.installation import HERE, REPOSITORY, Installation
from tests.conformance.programs import serving
from tests.engine.search.building import Library, small_config

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # the first test installs the clients
]

REFUSED = {
    "type": "knowledge_error",
    "error": {
        "code": "knowledge_query_required",
        "message": "give a query, or a knowledge_item_id",
    },
}
_CALL_S = 150
_TOLD_BY_THE_TOOL = 5  # the Inspector's exit status when a result is an error


@dataclass(frozen=True, slots=True)
class Reach:
    """How a client reaches a server: a URL and a token, or a program to start."""

    url: str | None = None
    token: str | None = None
    program: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a client was told: the names of the tools, and the results of its calls."""

    tools: list[str]
    answers: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Clients:
    """Starts one client after the other."""

    installation: Installation
    home: Path

    def ask(self, client: str, reach: Reach, calls: list[dict[str, Any]]) -> Told:
        """List the tools and make the calls."""
        if client == "inspector":
            return self._inspect(reach, calls)
        program = HERE / "clients" / client
        runner = self.installation.python
        if program.suffix == ".mjs":  # modules are looked for beside the program
            runner = self.installation.node
            program = self.installation.folder / client
            program.write_bytes((HERE / "clients" / client).read_bytes())
        asked = json.dumps({**asdict(reach), "calls": calls})
        told = json.loads(self._output([str(runner), str(program), asked]))
        return Told(told["tools"], told["answers"])

    def _inspect(self, reach: Reach, calls: list[dict[str, Any]]) -> Told:
        if reach.program is None:
            where = [str(reach.url), "--transport", "http"]
            where += ["--header", f"Authorization: Bearer {reach.token}"]
        else:
            session = self.home / "session.json"
            session.write_text(json.dumps({"mcpServers": {"octavo": reach.program}}), "utf-8")
            where = ["--config", str(session), "--server", "octavo"]
        program = [str(self.installation.node), str(self.installation.inspector), "--cli", *where]
        program += ["--format", "json", "--quiet", "--connect-timeout", str(_CALL_S * 1000)]
        call = [*program, "--method", "tools/call", "--tool-name", "search_knowledge"]
        commands = [[*program, "--method", "tools/list", "--strict"]]
        commands += [[*call, "--tool-args-json", json.dumps(each)] for each in calls]
        listed, *answers = (json.loads(self._output(each))["result"] for each in commands)
        return Told([tool["name"] for tool in listed["tools"]], answers)

    def _output(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.installation.environment(self.home),
            capture_output=True,
            text=True,
            timeout=_CALL_S,
            check=False,
        )
        assert done.returncode in (0, _TOLD_BY_THE_TOOL), done.stderr[-4000:]
        return done.stdout


@pytest.fixture
def clients(installation: Installation, tmp_path: Path) -> Clients:
    return Clients(installation, tmp_path)


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    """Serve a library in memory to one holder of a token."""
    token, entry = make_token("alice")
    tokens = tmp_path_factory.mktemp("served") / "tokens.yaml"
    tokens.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    with serving("tool", str(tokens)) as url:
        yield Reach(url=url, token=token)


@pytest.fixture(scope="module")
def over_stdio(tmp_path_factory: pytest.TempPathFactory) -> Reach:
    """Make a store of one text, for `octavo mcp`."""
    folder = tmp_path_factory.mktemp("stored")
    library = Library(folder / "store")
    library.add_base("kb")
    library.add("kb", [("a", "Title", "a text about marmots 漢字")])
    library.reindex()
    config = folder / "octavo.json"
    config.write_text(dump_config(small_config(library.root)), "utf-8")
    return Reach(
        program={
            "command": sys.executable,
            "args": ["-m", "jobs.cli", "--config", str(config), "mcp"],
            "env": {"PATH": os.environ["PATH"]},
            "cwd": str(REPOSITORY),
        }
    )


every_client = pytest.mark.parametrize(
    "client", ["inspector", "sdk.mjs", "client.mjs", "first_generation.py"]
)


def _said(answer: dict[str, Any]) -> Any:
    """Return the object of a result, which is the same as structure and as text."""
    (block,) = answer["content"]
    assert json.loads(block["text"]) == answer["structuredContent"]
    return answer["structuredContent"]


@every_client
def test_a_client_with_a_token_is_answered_and_refused_over_http(
    clients: Clients, over_http: Reach, client: str
) -> None:
    told = clients.ask(client, over_http, [{"knowledge_item_id": "ü"}, {}])
    assert told.tools == ["search_knowledge"]
    good, bad = told.answers
    assert not good.get("isError")
    assert _said(good)["content"] == "umlaut 漢字"
    assert bad["isError"]
    assert _said(bad) == REFUSED


@every_client
def test_a_client_is_answered_and_refused_over_stdio(
    clients: Clients, over_stdio: Reach, client: str
) -> None:
    told = clients.ask(client, over_stdio, [{"query": "marmots"}, {}])
    assert told.tools == ["search_knowledge"]
    good, bad = told.answers
    assert not good.get("isError")
    (result,) = _said(good)["results"]
    assert result["knowledge_item_id"] == "a"
    assert bad["isError"]
    assert _said(bad) == REFUSED


def test_the_server_of_the_clients_wants_the_token(over_http: Reach) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert httpx2.post(str(over_http.url), json=ping).status_code == 401
