"""The command line as a person types it: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from engine.errors import StoreError
from engine.ids import BaseId, ItemId
from engine.store.opening import open_store
from engine.store.revisions import NewRevision
from jobs.commands.asking import principal_named
from jobs.publish import NotCurrentError, Selection, Waiting
from tests.jobs.running import Shell

REPOSITORY = Path(__file__).resolve().parents[2]


def _process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jobs.cli", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def _add(shell: Shell, *names: str) -> list[str]:
    rows = [
        NewRevision(BaseId("kb"), name, f"The text of {name}.", "en", "file", name)
        for name in names
    ]
    report = open_store(shell.root).writer.add_revisions(rows)
    return [key[0] for key in report.keys if key is not None]


# ------------------------------------------------------------------------- help, version, usage


def test_help_shows_every_group_of_commands_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom jobs.cli import app\n"
        "print(CliRunner().invoke(app, ['--help']).stdout)\n"
        "heavy = {'ray', 'torch', 'jnius', 'pyarrow', 'faiss', 'lingua'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for part in ("Ask", "Put knowledge in", "Build and inspect", "Serve", "reindex", "octavo base"):
        assert part in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        "search", "read", "ingest", "publish", "unpublish", "archive", "withdraw", "base create",
        "base list", "base show", "base set", "reindex", "generation list", "generation show",
        "verify", "verify ranking", "status", "config show", "serve", "mcp", "runtime on",
        "runtime off", "token create", "demo",
    ],
)  # fmt: skip
def test_every_command_explains_itself_with_an_example(shell: Shell, words: str) -> None:
    said = shell.type(*words.split(), "--help")
    assert said.code == 0
    for part in ("--root", "--config", "--json", f"octavo {words}"):
        assert part in said.out


def test_the_version_is_printed(shell: Shell) -> None:
    assert shell.type("--version").out.startswith("octavo ")


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("search",),
        ("search", "x", "--nonsense"),
        ("base", "create", "kb"),
        ("reindex", "--shards", "0"),
        ("publish",),
        ("publish", "a", "--base", "kb"),
        ("publish", "--all", "--revision", "r"),
        ("archive",),
        ("base", "set", "kb"),
        ("base", "set", "kb", "--status", "asleep"),
        ("mcp", "--operator", "--as", "bob"),
        ("mcp", "--url", "http://127.0.0.1:1/mcp", "--operator"),
        ("ingest", "/nonexistent", "--base", "kb"),
    ],
)
def test_wrong_usage_exits_with_2_and_prints_nothing_on_standard_output(
    base: Shell, words: tuple[str, ...]
) -> None:
    said = base.type(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err


# -------------------------------------------------------------------------------- named errors


def test_a_missing_store_is_one_line_and_nothing_is_made(shell: Shell) -> None:
    for words in (("status",), ("base", "list"), ("reindex",), ("runtime", "off"), ("verify",)):
        said = shell.type(*words)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("octavo: error: there is no store at")
        assert said.err.rstrip().endswith("(octavo_store)")
        assert "\n" not in said.err.rstrip()
    assert not shell.root.exists()


def test_a_folder_of_something_else_is_refused(shell: Shell) -> None:
    shell.root.mkdir()
    (shell.root / "thesis.txt").write_text("precious", "utf-8")
    said = shell.type("base", "create", "kb", "--title", "K", "--owner", "alice")
    assert (said.code, "octavo_store" in said.err) == (1, True)
    assert [path.name for path in shell.root.iterdir()] == ["thesis.txt"]


def test_with_json_an_error_is_one_document_on_standard_output_too(base: Shell) -> None:
    said = base.type("base", "show", "nowhere", "--json")
    assert said.code == 1
    assert said.document["type"] == "octavo_error"
    assert said.document["error"]["code"] == "octavo_not_found"


def test_an_unknown_configuration_key_is_refused_with_the_nearest_known(shell: Shell) -> None:
    shell.config_file.write_text("encoder: {modell: hashing}", "utf-8")
    said = shell.type("config", "show")
    assert said.code == 1
    assert "encoder.modell" in said.err
    assert "encoder.model?" in said.err


def test_an_unexpected_error_gets_a_fault_id_and_its_trace_a_file(
    base: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(root: str) -> None:
        raise RuntimeError("the secret cause")

    monkeypatch.setattr("engine.store.opening.open_store", fail)
    said = base.type("base", "list")
    assert said.code == 1
    assert "secret" not in said.err
    fault = said.err.split("fault ")[1].split(":")[0]
    log = (base.root / "octavo-faults.log").read_text("utf-8")
    assert fault in log
    assert "the secret cause" in log
    assert "the secret cause" in base.type("base", "list", "--debug").err


# -------------------------------------------------------------------------------------- options


def test_global_options_stand_before_or_after_the_command(base: Shell, tmp_path: Path) -> None:
    before = _process("--root", str(base.root), "base", "list", "--json")
    after = _process("base", "list", "--json", "--root", str(base.root))
    assert before.returncode == after.returncode == 0
    assert json.loads(before.stdout) == json.loads(after.stdout)
    assert before.stderr == after.stderr == ""
    nearer = base.type("base", "list", "--root", str(tmp_path / "other"))
    assert nearer.code == 1


def test_the_configuration_in_force_is_yaml_and_json(base: Shell) -> None:
    document = base.json("config", "show")
    assert document == yaml.safe_load(base.type("config", "show").out)
    assert document["root"] == str(base.root)
    assert document["encoder"]["model"] == "hashing"


@pytest.mark.parametrize(
    ("text", "subject", "teams"),
    [
        ("alice", "alice", set()),
        ("alice:docs, sales", "alice", {"docs", "sales"}),
        (":", "", set()),
    ],
)
def test_somebody_reads_with_their_teams_and_nothing_more(
    text: str, subject: str, teams: set[str]
) -> None:
    principal = principal_named(text)
    assert (principal.subject, set(principal.teams)) == (subject, teams)
    assert principal.scopes == {"knowledge:read"}
    assert not principal.operator
    assert principal_named(None).operator


# ---------------------------------------------------------------------------------------- bases


def test_a_base_is_created_shown_changed_listed_and_archived(base: Shell) -> None:
    assert base.json("base", "show", "kb")["version"] == 1
    changed = base.json("base", "set", "kb", "--scope", "team", "--team", "docs", "--title", "K 2")
    assert (changed["scope"], changed["team"], changed["title"]) == ("team", "docs", "K 2")
    stale = base.type("base", "set", "kb", "--owner", "bob", "--expected-version", "1", "--json")
    assert (stale.code, stale.document["error"]["code"]) == (1, "octavo_stale_version")
    assert base.json("base", "set", "kb", "--scope", "public", "--team", "")["team"] is None
    assert base.json("archive", "--base", "kb") == {"archived_base": "kb"}
    assert base.json("base", "show", "kb")["status"] == "archived"
    assert base.json("base", "set", "kb", "--status", "active")["status"] == "active"
    assert [row["base"] for row in base.json("base", "list")["bases"]] == ["kb"]
    assert "K 2" in base.type("base", "list").out


def test_a_base_of_the_same_id_is_not_made_twice(base: Shell) -> None:
    words = ("base", "create", "kb", "--owner", "alice", "--scope", "public", "--title")
    assert base.type(*words, "Knowledge").code == 0
    said = base.type(*words, "Another")
    assert (said.code, "octavo_conflict" in said.err) == (1, True)
    wrong = base.type("base", "create", "x", "--title", "X", "--owner", "a", "--scope", "secret")
    assert (wrong.code, "octavo_invalid_value" in wrong.err) == (1, True)


# ---------------------------------------------------------------------------------- publication


def test_items_are_published_unpublished_archived_and_withdrawn(base: Shell) -> None:
    first, second, third = sorted(_add(base, "a", "b", "c"))
    assert base.json("publish", first)["published"] == 1
    assert base.json("status")["items"] == {"draft": 2, "published": 1, "archived": 0}
    assert base.json("publish", "--base", "kb")["published"] == 3
    assert base.json("publish", "--all")["published"] == 3
    assert base.json("status")["pending"] == 3
    assert base.json("unpublish", first, second)["unpublished"] == 2
    assert base.json("archive", third)["archived"] == 1
    assert base.json("status")["items"] == {"draft": 2, "published": 0, "archived": 1}
    state = open_store(base.root).catalog.poll().item(ItemId(first))
    assert state is not None
    withdrawn = base.json("withdraw", first, state.head_revision)
    assert withdrawn == {"item": first, "withdrawn": state.head_revision}
    again = base.type("publish", first, "--json")
    assert (again.code, again.document["error"]["code"]) == (1, "octavo_conflict")
    missing = base.type("withdraw", first, "nothing")
    assert (missing.code, "octavo_not_found" in missing.err) == (1, True)
    assert base.type("publish", "nowhere").code == 1
    assert base.type("publish", "--base", "nowhere").code == 1


def test_a_stale_version_of_an_item_is_refused(base: Shell) -> None:
    (item,) = _add(base, "a")
    assert base.type("publish", item, "--expected-version", "9").code == 1
    assert base.type("publish", item, "--expected-version", "1").code == 0


def test_waiting_ends_at_its_deadline_and_says_what_to_do(base: Shell) -> None:
    (item,) = _add(base, "a")
    said = base.type("publish", item, "--wait", "--wait-s", "0", "--json")
    assert said.code == 1
    assert said.document["error"]["code"] == "octavo_not_current"
    assert "octavo reindex" in said.err
    assert base.json("status")["items"]["published"] == 1


def test_what_was_overtaken_is_not_waited_for(base: Shell) -> None:
    (item,) = _add(base, "a")
    base.json("publish", item)
    store = open_store(base.root)
    waiting = Waiting(store, Selection((ItemId(item),)))
    assert waiting.missing() == (item,)
    with pytest.raises(NotCurrentError):
        waiting.wait(0.0)
    base.json("unpublish", item)
    assert waiting.missing() == ()
    waiting.wait(0.0)


# ------------------------------------------------------------------------------- runtime, tokens


def test_the_runtime_is_switched_off_and_on(base: Shell) -> None:
    assert base.json("runtime", "off") == {"runtime": "off"}
    assert base.json("status")["runtime"] == "off"
    assert base.json("runtime", "on") == {"runtime": "on"}
    assert base.json("status")["runtime"] == "on"


def test_a_token_is_shown_once_and_only_its_hash_is_kept(base: Shell, tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    words = ("--team", "docs", "--team", "sales", "--file", str(file))
    first = base.json("token", "create", "alice", *words)
    second = base.json("token", "create", "bob", "--file", str(file))
    text = file.read_text("utf-8")
    assert first["token"] not in text
    assert second["token"] != first["token"]
    entries = yaml.safe_load(text)["tokens"]
    assert [(entry["subject"], entry["teams"]) for entry in entries] == [
        ("alice", ["docs", "sales"]),
        ("bob", []),
    ]
    file.write_text("tokens: nonsense", "utf-8")
    assert base.type("token", "create", "eve", "--file", str(file)).code == 1
    assert file.read_text("utf-8") == "tokens: nonsense"


# -------------------------------------------------------------------------------------- reading


@pytest.mark.jvm
def test_contract_errors_are_the_contracts_body(base: Shell) -> None:
    cases = {
        ("search", ""): "knowledge_query_required",
        ("search", "x", "--max-results", "99"): "knowledge_invalid_request",
        ("search", "x", "--max-results", "ten"): "knowledge_invalid_request",
        ("search", "x", "--alpha", "nan"): "knowledge_invalid_request",
        ("search", "x", "--base", "nowhere"): "knowledge_resource_unavailable",
        ("read", "nowhere"): "knowledge_resource_unavailable",
        ("read", "i", "--limit-chars", "0"): "knowledge_invalid_request",
    }
    for words, code in cases.items():
        said = base.type(*words, "--json")
        assert (said.code, said.document["type"]) == (1, "knowledge_error"), words
        assert said.document["error"]["code"] == code
        assert said.err.rstrip().endswith(f"({code})")
    base.json("runtime", "off")
    off = base.type("search", "x", "--json")
    assert off.document["type"] == "knowledge_unavailable"


def test_reading_needs_a_store(shell: Shell) -> None:
    said = shell.type("search", "x", "--json")
    assert (said.code, said.document["error"]["code"]) == (1, StoreError.code)
