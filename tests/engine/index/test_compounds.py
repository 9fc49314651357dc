"""What is parted, what is not, and that it is the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.index.compounds import LANGUAGES, SHORTEST_COMPOUND, Compounds, compounds


@pytest.mark.parametrize(
    ("language", "word", "parts"),
    [
        ("de", "donaudampfschifffahrt", ["donau", "dampf", "schifffahrt", "schiff", "fahrt"]),
        ("de", "reparaturkosten", ["reparatur", "kosten"]),
        ("de", "rechtsgrundlage", ["recht", "grundlage", "grund", "lage"]),
        ("de", "krankenhaus", ["kranken", "haus"]),
        ("nl", "ziekenhuisopname", ["ziekenhuis", "zieken", "huis", "opname"]),
    ],
)
def test_a_compound_is_parted_into_words(language: str, word: str, parts: list[str]) -> None:
    assert list(compounds(language).split(word)) == parts


@pytest.mark.parametrize(
    "word",
    ["gesellschaft", "wissenschaft", "entscheidung", "universität", "informationen", "regelungen"],
)
def test_a_derived_word_is_no_compound(word: str) -> None:
    assert compounds("de").split(word) == ()


def test_short_and_unknown_words_are_left_alone() -> None:
    for word in ("", "haus", "x" * 5_000, "haustuer"[: SHORTEST_COMPOUND - 1]):
        assert compounds("de").split(word) == ()


def test_a_language_without_compounds_is_a_key_error() -> None:
    assert sorted(LANGUAGES) == ["de", "nl"]
    with pytest.raises(KeyError):
        Compounds("fr")


@pytest.mark.slow
def test_another_process_with_other_hashes_parts_alike() -> None:
    words = ["donaudampfschifffahrt", "haustürschlüssel", "verwaltungsdienstleistungen"]
    code = (
        "import sys; from engine.index.compounds import compounds; "
        "print([compounds('de').split(word) for word in sys.argv[1:]])"
    )
    root = Path(__file__).parents[3]
    said = {
        subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=root,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert said == {str([compounds("de").split(word) for word in words])}
