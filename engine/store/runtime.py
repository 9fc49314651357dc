"""The runtime switch: whether the knowledge runtime answers at all. On until it is set off."""

from __future__ import annotations

import json

from engine.errors import NotFoundError, StoreError
from engine.store.storage import Storage

RUNTIME_KEY = "runtime.json"


class RuntimeSwitch:
    """Reads and sets the switch of one root. Every call reads the file: nothing is cached."""

    def __init__(self, storage: Storage) -> None:
        """Take the root whose switch this is; nothing is read yet."""
        self._storage = storage

    def enabled(self) -> bool:
        """Say whether the runtime may answer; True when it was never set.

        Raises:
            StoreError: the file cannot be read or is not the switch: off is then not known.
        """
        try:
            data = self._storage.read_bytes(RUNTIME_KEY)
        except NotFoundError:
            return True
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not isinstance(value, dict) or not isinstance(value.get("enabled"), bool):
            raise StoreError(f"{RUNTIME_KEY} is damaged: run `octavo runtime on` or `off`")
        return bool(value["enabled"])

    def set(self, enabled: bool) -> None:
        """Set the switch, atomically and durably."""
        data = json.dumps({"enabled": enabled}).encode("utf-8")
        self._storage.put_bytes_atomic(RUNTIME_KEY, data)
