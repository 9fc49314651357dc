"""The served ranking and brute force agree; what the command says, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.authorization import OPERATOR, Principal
from engine.contract import MODES
from engine.errors import (
    ConfigurationError,
    ConflictError,
    EncoderError,
    NotFoundError,
    ResourceUnavailableError,
)
from engine.ids import ItemId
from engine.search.answering import Knowledge
from engine.search.ranking import Ranking
from jobs.verify_queries import read_queries
from tests.engine.search.building import Library
from tests.engine.search.texts import QUERIES
from tests.jobs.ranked import QUESTIONS, READER, STRANGER, make_library, verified
from tests.jobs.running import Shell, make_shell


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library(tmp_path_factory.mktemp("ranked") / "store")


@pytest.mark.parametrize(
    "principal", [OPERATOR, READER, STRANGER], ids=lambda principal: principal.subject
)
def test_the_served_ranking_agrees_with_brute_force(
    library: Library, tmp_path: Path, principal: Principal
) -> None:
    report = verified(library, tmp_path, principal=principal)
    assert report.findings == []
    assert report.agreed
    assert report.queries == len(QUESTIONS)
    assert report.count("agree") + report.count("within_rounding") == len(QUESTIONS) * len(MODES)
    assert report.count("within_rounding") < report.count("agree")
    assert 0.0 < report.largest < 1e-11
    assert 0 < report.readable < report.passages


def test_lexical_answers_agree_with_no_room_for_rounding(library: Library, tmp_path: Path) -> None:
    report = verified(library, tmp_path, modes=("lexical",))
    assert report.modes["lexical"].document() | {"largest_difference": 0.0} == {
        "answers": len(QUESTIONS),
        "agree": len(QUESTIONS),
        "within_rounding": 0,
        "disagree": 0,
        "uncertified": 0,
        "uncertified_same": 0,
        "largest_difference": 0.0,
    }


@pytest.mark.parametrize("base", ["open", "team"])
def test_answers_narrowed_to_a_base_agree(library: Library, tmp_path: Path, base: str) -> None:
    report = verified(library, tmp_path, principal=READER, knowledge_base_id=base)
    assert report.findings == []
    assert report.agreed


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_any_weight_of_words_agrees(library: Library, tmp_path: Path, alpha: float) -> None:
    report = verified(library, tmp_path, modes=("hybrid",), alpha=alpha)
    assert report.findings == []
    assert report.agreed


def test_a_base_that_the_caller_may_not_read_is_refused(library: Library, tmp_path: Path) -> None:
    with pytest.raises(ResourceUnavailableError):
        verified(library, tmp_path, principal=READER, knowledge_base_id="secret")


def test_a_store_that_changes_meanwhile_is_not_called_right_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(tmp_path / "store")
    library.add_base("open")
    library.add("open", [("one", "One", "a server"), ("two", "Two", "another server")])
    library.reindex()
    original = Knowledge.rank

    async def rank(self: Knowledge, *asked: object) -> Ranking:
        ranking = await original(self, *asked)  # type: ignore[arg-type]  # passed through
        library.store.writer.unpublish([ItemId("two")])
        return ranking

    monkeypatch.setattr(Knowledge, "rank", rank)
    with pytest.raises(ConflictError, match="changed while"):
        verified(library, tmp_path, ["server"], ["lexical"])


# ----------------------------------------------------------------------------------- the file


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_text_file_is_one_query_a_line_in_every_mode(tmp_path: Path) -> None:
    path = _file(tmp_path, "queries.txt", '  first one \n\nseco"nd {\n')
    lines = read_queries(path, MODES, {})
    assert [(line.number, line.text) for line in lines] == [(1, "first one"), (3, 'seco"nd {')]
    assert [request.mode for request in lines[0].requests] == list(MODES)


def test_a_line_of_json_may_name_mode_alpha_results_and_base(tmp_path: Path) -> None:
    rows = [
        {"_id": "7", "text": "first", "metadata": {}},
        {"text": "second", "mode": "hybrid", "alpha": 0.25, "max_results": 3, "base": "kb"},
    ]
    path = _file(tmp_path, "queries.jsonl", "\n".join(map(json.dumps, rows)))
    first, second = read_queries(path, MODES, {"max_results": 20, "knowledge_base_id": ""})
    assert [request.mode for request in first.requests] == list(MODES)
    assert {request.max_results for request in first.requests} == {20}
    (request,) = second.requests
    assert (request.mode, request.alpha, request.max_results, request.base) == (
        ("hybrid", 0.25, 3, "kb")
    )


def test_a_sample_is_spread_evenly_over_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "queries.txt", "\n".join(f"query {at}" for at in range(10)))
    assert [line.number for line in read_queries(path, MODES, {}, 4)] == [1, 3, 6, 8]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("q.txt", "\n \n", "holds no query"),
        ("q.jsonl", '{"text": "a"}\n{"title": "b"}', "line 2"),
        ("q.jsonl", "not json", "line 1"),
        ("q.jsonl", '{"text": "a", "max_results": 51}', "line 1.*1..50"),
        ("q.txt", "x" * 4001, "line 1.*4000"),
    ],
)
def test_a_file_of_anything_else_is_refused_by_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_queries(_file(tmp_path, name, text), MODES, {})


# -------------------------------------------------------------------------------- the command


@pytest.fixture
def shell(library: Library, tmp_path: Path) -> Shell:
    made = make_shell(tmp_path)
    (tmp_path / "queries.txt").write_text("\n".join(QUERIES[:4]), "utf-8")
    return Shell(library.root, made.config_file)


def test_the_command_says_how_many_answers_agree(shell: Shell, tmp_path: Path) -> None:
    said = shell.type("verify", "ranking", "--queries", str(tmp_path / "queries.txt"))
    assert said.code == 0, said.err
    assert "None of 16 answers of generation 2 over" in said.out
    assert "compared 4 of 4 queries" in said.err
    again = shell.type("verify", "ranking", "--queries", str(tmp_path / "queries.txt"))
    assert again.out == said.out


def test_the_command_narrows_to_a_mode_a_sample_and_a_caller(shell: Shell, tmp_path: Path) -> None:
    words = ("--queries", str(tmp_path / "queries.txt"), "--mode", "Lexical", "--sample", "2")
    document = shell.json("verify", "ranking", *words, "--as", "dora:blue", "--base", "team")
    assert (document["answers"], document["agree"], document["principal"]) == (2, 2, "dora")
    assert list(document["modes"]) == ["lexical"]


def test_options_of_the_group_count_for_the_command(library: Library, tmp_path: Path) -> None:
    shell = make_shell(tmp_path)
    path = _file(tmp_path, "queries.txt", "server")
    words = ("--root", str(library.root), "--json", "ranking", "--queries", str(path))
    said = shell.type("verify", *words, "--mode", "lexical")
    assert (said.code, said.document["answers"]) == (0, 1)


def test_a_difference_ends_with_exit_code_1_and_says_where(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Knowledge.rank

    async def rank(self: Knowledge, *asked: object) -> Ranking:
        ranking = await original(self, *asked)  # type: ignore[arg-type]  # passed through
        first, second, *rest = ranking.results
        return Ranking((second, first, *rest), ranking.coverage)

    monkeypatch.setattr(Knowledge, "rank", rank)
    words = ("verify", "ranking", "--queries", str(tmp_path / "queries.txt"), "--mode", "semantic")
    said = shell.type(*words)
    assert said.code == 1
    assert "line 1, semantic: rank 1: another item belongs here; served" in said.out
    assert "4 of 4 answers" in said.out
    document = shell.type(*words, "--json").document
    assert (document["verified"], document["disagree"]) == (False, 4)
    first = document["disagreements"][0]
    assert first["served"]["score"] < first["reference"]["score"]


def test_an_unknown_mode_is_refused(shell: Shell, tmp_path: Path) -> None:
    words = ("--queries", str(tmp_path / "queries.txt"), "--mode", "lexicl")
    said = shell.type("verify", "ranking", *words)
    assert (said.code, said.out) == (1, "")
    assert "hybrid, lexical, semantic, rrf" in said.err


def test_a_store_without_a_generation_or_of_another_encoder_is_refused(
    library: Library, tmp_path: Path
) -> None:
    empty = Library(tmp_path / "empty")
    empty.add_base("open")
    with pytest.raises(NotFoundError, match="no generation"):
        verified(empty, tmp_path, ["server"])
    shell = make_shell(tmp_path)
    shell.config_file.write_text('{"encoder": {"model": "hashing", "dimension": 128}}', "utf-8")
    path = _file(tmp_path, "queries.txt", "server")
    said = Shell(library.root, shell.config_file).type("verify", "ranking", "--queries", str(path))
    assert (said.code, f"({EncoderError.code})" in said.err) == (1, True)
