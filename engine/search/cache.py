"""A bounded memory: the entry used longest ago falls out first. Safe between threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


def _one(_: object) -> int:
    return 1


class BoundedCache[K: Hashable, V]:
    """Keeps values up to a total weight."""

    def __init__(self, capacity: int, weigh: Callable[[V], int] = _one) -> None:
        """Keep at most `capacity`, counted by `weigh`; by default each value counts 1."""
        self._capacity = capacity
        self._weigh = weigh
        self._weight = 0
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key and mark it as used, or None."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: K, value: V) -> None:
        """Keep a value; one heavier than the whole capacity is not kept."""
        with self._lock:
            if key in self._entries:
                self._weight -= self._weigh(self._entries.pop(key))
            self._entries[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._capacity:
                _, dropped = self._entries.popitem(last=False)
                self._weight -= self._weigh(dropped)
