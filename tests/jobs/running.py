"""Running the command line in this process, on a store of its own with the hashing encoder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from engine.config import Config, parse_config
from jobs.cli import app

SETTINGS: dict[str, dict[str, Any]] = {
    "encoder": {"model": "hashing", "dimension": 64},
    "passages": {"max_tokens": 32},
    "jobs": {"batch_rows": 4, "commit_rows": 7},
    "jvm": {"heap_mb": 128},
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Return the one JSON document of standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True, slots=True)
class Shell:
    """Types commands against one root."""

    root: Path
    config_file: Path

    @property
    def config(self) -> Config:
        """Return the configuration that the commands use."""
        return parse_config({**SETTINGS, "root": str(self.root)})

    def type(self, *words: str) -> Said:
        """Run a command and return what it said."""
        given = ["--root", str(self.root), "--config", str(self.config_file), *words]
        result = CliRunner().invoke(app, given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    def json(self, *words: str) -> dict[str, Any]:
        """Run a command with --json, require success, and return the document."""
        said = self.type(*words, "--json")
        assert said.code == 0, said.err
        return said.document


def make_shell(folder: Path, jobs: dict[str, Any] | None = None) -> Shell:
    """Return a shell over an empty root in a folder.

    Args:
        folder: holds the root and the configuration.
        jobs: keys of the branch `jobs` besides those of `SETTINGS`.
    """
    config_file = folder / "octavo.yaml"
    settings = SETTINGS | {"jobs": {**SETTINGS["jobs"], **(jobs or {})}}
    config_file.write_text(json.dumps(settings), "utf-8")
    return Shell(folder / "root", config_file)


WORDS = (
    *("harbour", "lantern", "meadow", "copper", "violin"),
    *("glacier", "orchard", "thunder", "saddle", "compass"),
)


def text_of(number: int, sentences: int = 6) -> str:
    """Return a text of its own for each number, of several passages."""
    lines = []
    for line in range(sentences):
        first, second = WORDS[number % 10], WORDS[(number // 10 + line) % 10]
        lines.append(
            f"Sentence {line} of text {number} tells how the {first} stood beside the {second}, "
            f"and why number {number} was written on it."
        )
    return "\n\n".join(lines)


def write_texts(folder: Path, numbers: range) -> None:
    """Write Markdown files `text-N.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"text-{number:03d}.md").write_text(
            f"# Text {number}\n\n{text_of(number)}\n", "utf-8"
        )
