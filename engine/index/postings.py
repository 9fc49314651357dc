"""What a Lucene index holds, read as it is: counts, length bytes, postings. No score, no filter.

For whoever recomputes a ranking: nothing here knows how the product scores or counts.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import JavaError, SegmentRefusedError
from engine.index.analysis import java_failures
from engine.index.lucene import lucene

_NO_MORE = 2**31 - 1
_FREQS = 8  # PostingsEnum.FREQS


class RawPostings:
    """One segment's Lucene index, open for reading. Use from one thread; ends with `close`."""

    def __init__(self, directory: Path) -> None:
        """Open the index in a folder, memory-mapped.

        Raises:
            SegmentRefusedError: Lucene cannot read it, or it is not one Lucene segment.
            JavaError: the JVM is not running.
        """
        self._java = lucene()
        self._directory = self._java.open_directory(str(directory))
        name = directory.parent.name
        try:
            with java_failures("opening postings"):
                self._reader = self._java.DirectoryReader.open(self._directory)
        except JavaError as error:
            self._directory.close()
            raise SegmentRefusedError(name, f"Lucene cannot read it ({error})") from error
        leaves = self._reader.leaves()
        if leaves.size() != 1:
            self.close()
            raise SegmentRefusedError(name, "its Lucene index is not one whole Lucene segment")
        context = leaves.get(0)
        self._leaf: Any = context.reader()
        self.passages = int(self._reader.maxDoc())

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the files."""
        self.close()

    def close(self) -> None:
        """Release the files. Nothing may be read afterwards."""
        with java_failures("closing postings"):
            self._reader.close()
            self._directory.close()

    def totals(self, field: str) -> tuple[int, int]:
        """Return how many passages have a token in a field, and how many tokens those are."""
        with java_failures("counting tokens"):
            passages = int(self._leaf.getDocCount(field))
            tokens = int(self._leaf.getSumTotalTermFreq(field)) if passages else 0
            return passages, tokens

    def length_bytes(self, field: str) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the passages that have a field, and the byte that keeps the length of each.

        Returns:
            Ordinals, int32 of shape (n,), ascending; and bytes, uint8 of shape (n,).
        """
        ordinals, kept = [], []
        with java_failures("reading lengths"):
            values = self._leaf.getNormValues(field)
            while values is not None and (ordinal := values.nextDoc()) != _NO_MORE:
                ordinals.append(ordinal)
                kept.append(values.longValue() & 0xFF)
        return np.array(ordinals, np.int32), np.array(kept, np.uint8)

    def postings(self, field: str, term: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the passages that hold a term, and how often each holds it.

        Returns:
            Ordinals, int32 of shape (n,), ascending; and frequencies, int32 of shape (n,), at
            least 1. Every passage of the segment counts, whoever may read it.
        """
        ordinals, frequencies = [], []
        with java_failures("reading postings"):
            asked = self._java.Term(field, term)
            found = self._leaf.postings(asked, _FREQS)
            while found is not None and (ordinal := found.nextDoc()) != _NO_MORE:
                ordinals.append(ordinal)
                frequencies.append(found.freq())
        return np.array(ordinals, np.int32), np.array(frequencies, np.int32)
