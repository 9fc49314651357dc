"""Writes the Lucene index of one segment: one thread, insertion order kept, one Lucene segment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import JavaError
from engine.index.analysis import java_failures, passage_terms
from engine.index.languages import FIELD_NAMES
from engine.index.lexical import LexicalIndex
from engine.index.lucene import lucene

_BUFFER_MB = 64.0
_NO_MORE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the passages of a segment are.

    Attributes:
        tokens: int32 of shape (passages,), tokens of each.
        norms: uint8 of shape (passages,), the length byte as Lucene stores it.
    """

    tokens: NDArray[np.int32]
    norms: NDArray[np.uint8]


class LexicalBuilder:
    """Takes passages in ordinal order. Use from one thread; end with `finish` or `abort`."""

    def __init__(self, path: Path) -> None:
        """Open a writer in a new folder.

        Raises:
            JavaError: the JVM is not running, or Lucene cannot write there.
            StorageFullError: no space is left.
        """
        self._java = lucene()
        self._path = path
        self._codes: list[int] = []
        self._tokens: list[int] = []
        self._documents: dict[int, tuple[Any, Any]] = {}
        with java_failures("building the lexical index"):
            self._type = self._field_type()
            self._directory = self._java.open_directory(str(path))
            configuration = self._configuration()
            self._writer = self._java.IndexWriter(self._directory, configuration)

    def _field_type(self) -> Any:
        made, options = self._java.FieldType(), self._java.IndexOptions.DOCS_AND_FREQS
        made.setTokenized(True)
        made.setIndexOptions(options)
        made.freeze()
        return made

    def _configuration(self) -> Any:
        # The terms are made already: the writer only parts them.
        chosen = self._java.WhitespaceAnalyzer()
        configuration = self._java.IndexWriterConfig(chosen)
        # Merges only neighbours, one at a time: doc id stays insertion order.
        policy, scheduler = self._java.LogDocMergePolicy(), self._java.SerialMergeScheduler()
        policy.setNoCFSRatio(1.0)
        configuration.setMergePolicy(policy)
        configuration.setMergeScheduler(scheduler)
        configuration.setRAMBufferSizeMB(_BUFFER_MB)
        return configuration

    def add(self, code: int, text: str) -> int:
        """Index a passage under the next ordinal.

        Args:
            code: a field's code, see `languages.FIELDS`.
            text: title and passage text together.

        Returns:
            How many tokens it has.

        Raises:
            StorageFullError: no space is left.
            JavaError: Lucene failed.
        """
        terms = passage_terms(FIELD_NAMES[code], text)
        joined = " ".join(terms)
        with java_failures("building the lexical index"):
            document, field = self._document(code)
            field.setStringValue(joined)
            self._writer.addDocument(document)
        self._codes.append(code)
        self._tokens.append(len(terms))
        return len(terms)

    def _document(self, code: int) -> tuple[Any, Any]:
        # One document a field, reused: making Java objects costs more than indexing a text.
        if code not in self._documents:
            document = self._java.Document()
            field = self._java.Field(FIELD_NAMES[code], "", self._type)
            document.add(field)
            self._documents[code] = (document, field)
        return self._documents[code]

    def abort(self) -> None:
        """Drop what was written and release the files."""
        with java_failures("dropping an unfinished lexical index"):
            self._writer.rollback()
            self._directory.close()

    def finish(self) -> Lengths:
        """Merge to one Lucene segment, commit, close, and read back what Lucene stored.

        Raises:
            StorageFullError: no space is left.
            JavaError: Lucene failed, or counts other passages or tokens than were added.
        """
        with java_failures("building the lexical index"):
            self._writer.forceMerge(1)
            self._writer.close()
            self._directory.close()
        index = LexicalIndex.open(self._path)
        try:
            return self._read_back(index)
        finally:
            index.close()

    def _read_back(self, index: LexicalIndex) -> Lengths:
        tokens = np.array(self._tokens, dtype=np.int32)
        codes = np.array(self._codes, dtype=np.uint8)
        norms = np.zeros(len(tokens), dtype=np.uint8)
        agreed = index.passages == len(tokens)
        for code, name in enumerate(FIELD_NAMES):
            local = index.local_statistics(name, ())
            mine = tokens[codes == code]
            counted = (int(np.count_nonzero(mine)), int(mine.sum(dtype=np.int64)))
            agreed = agreed and counted == (local.passages, local.tokens)
        if not agreed:
            raise JavaError("Lucene counts other passages or tokens than were added")
        for code in np.unique(codes).tolist():
            for ordinal, norm in index.norms(FIELD_NAMES[code]):
                if codes[ordinal] != code:
                    raise JavaError("Lucene did not keep the order of the passages")
                norms[ordinal] = norm
        return Lengths(tokens, norms)
