"""`octavo search --explain` on a real store: the object, and the same made readable."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.search.building import Library
from tests.jobs.running import Shell, make_shell

QUERY = "copper lantern zork"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder: Path = tmp_path_factory.mktemp("explaining")
    shell = make_shell(folder)
    library = Library(shell.root)
    library.add_base("kb")
    library.add_base("hidden", scope="private", owner="nobody")
    texts = [
        (f"item-{at}", "Copper", "the copper lantern " * (at + 1) + "stands by") for at in range(4)
    ]
    library.add("kb", [*texts, ("other", "A [red]meadow[/red]\x1b[2J", "a meadow of thunder")])
    library.add("hidden", [("secret", "Copper", "a hidden copper lantern")])
    library.reindex(shards=2)
    return shell


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic", "rrf"])
def test_the_object_holds_the_answer_and_explains_each_result(shell: Shell, mode: str) -> None:
    plain = shell.json("search", QUERY, "--mode", mode)
    explanation = shell.json("search", QUERY, "--mode", mode, "--explain")
    assert explanation["answer"] == plain
    assert [one["knowledge_item_id"] for one in explanation["results"]] == [
        one["knowledge_item_id"] for one in plain["results"]
    ]
    assert explanation["certified"] is True


def test_as_somebody_the_counts_are_those_of_what_that_person_may_read(shell: Shell) -> None:
    seen = [
        shell.json("search", QUERY, "--explain", *words)["query"]["fields"][0]["passages"]
        for words in ((), ("--as", "stranger"))
    ]
    assert seen == [6, 5]


def test_the_printed_digits_can_be_computed_again(shell: Shell) -> None:
    said = shell.type("search", QUERY, "--explain")
    assert said.code == 0, said.err
    field = re.search(
        r"N (\d+) passages, T (\d+) tokens, average (\S+), k1 (\S+), b (\S+),", said.out
    )
    assert field is not None
    passages, tokens = int(field[1]), int(field[2])
    assert field[3] == f"{tokens / passages:.6f}"
    k1, b = float(field[4]), float(field[5])
    blocks = re.split(r"\n {4}score +", said.out)[1:]
    assert len(blocks) == 5
    for block in blocks:
        score = re.match(r"([\d.]+) \* lex (\S+) \+ \(1 - \1\) \* sem (\S+) = (\S+)", block)
        lexical = re.search(r"BM25 (\S+), at most .* counted as (\d+)", block)
        semantic = re.search(r"cosine (\S+), by chance (\S+), sem (\S+)", block)
        assert score is not None
        assert lexical is not None
        assert semantic is not None
        norm = k1 * (1.0 - b + b * int(lexical[2]) / (tokens / passages))
        total = 0.0
        rows = re.findall(r"^ +(\w+) +(\d+) +(\d+) +(\S+) +(\d+) +(\S+) +(\S+) *$", block, re.M)
        for _, qtf, n, idf, tf, part, contribution in rows:
            exact = math.log(1.0 + (passages - int(n) + 0.5) / (int(n) + 0.5))
            assert idf == f"{exact:.6f}"
            assert part == f"{int(tf) / (int(tf) + norm):.6f}"
            assert contribution == f"{int(qtf) * exact * (int(tf) / (int(tf) + norm)):.6f}"
            total += int(qtf) * exact * (int(tf) / (int(tf) + norm))
        assert lexical[1] == f"{total:.6f}"
        floor = float(semantic[2])
        assert semantic[3] == f"{max(float(semantic[1]) - floor, 0.0) / (1.0 - floor):.6f}"
        alpha = float(score[1])
        weighted = alpha * float(score[2]) + (1.0 - alpha) * float(score[3])
        assert float(score[4]) == pytest.approx(weighted, abs=1.1e-6)


def test_what_is_printed_moves_no_terminal(shell: Shell) -> None:
    said = shell.type("search", "meadow \x1b[2J thunder", "--explain", "--mode", "rrf")
    assert said.code == 0, said.err
    assert "\x1b" not in said.out
    assert "A [red]meadow[/red]" in said.out
    assert re.search(r"score +1 / \(60 \+ 1\) \+ 1 / \(60 \+ 1\) = 0.032787", said.out)


def test_a_warning_says_what_and_why(shell: Shell, tmp_path: Path) -> None:
    """The newest generation is damaged: its predecessor answers, and the command says so."""
    copy = make_shell(tmp_path)
    library = Library(shell.root, counter=100).copy(copy.root)
    library.add("kb", [("new", "New", "a new text")])
    newest = library.reindex(shards=2)
    damaged = copy.root / "segments" / newest.segments[0].name / "segment.json"
    damaged.write_bytes(b"{}")
    given = ["--root", str(copy.root), "--config", str(copy.config_file)]
    said = subprocess.run(  # a process of its own, as for a user: the logging of no other test
        [sys.executable, "-m", "jobs.cli", *given, "search", "copper", "--mode", "lexical"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    line = next(one for one in said.stderr.splitlines() if "generation refused" in one)
    assert line.startswith("octavo: warning: generation refused (generation 2, ")
    assert newest.segments[0].name in line
