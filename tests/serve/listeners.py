"""Which TCP addresses the processes of a tree listen on, from /proc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from serve.processes import Process

_LISTENING = "0A"
_LOOPBACK = frozenset({"0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F"})


def _sockets(process: Process) -> set[str]:
    try:
        links = list(Path(f"/proc/{process.pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):  # it has ended: it listens nowhere
        return set()
    found = set()
    for link in links:
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
        except OSError:
            continue
        if match:
            found.add(match[1])
    return found


def listening_beyond_loopback(processes: Iterable[Process]) -> set[tuple[str, int]]:
    """Return (address in hexadecimal, port) of each listener that other machines could reach."""
    ours: set[str] = set()
    for process in processes:
        ours |= _sockets(process)
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == _LISTENING and fields[9] in ours and address not in _LOOPBACK:
                found.add((address, int(port, 16)))
    return found
