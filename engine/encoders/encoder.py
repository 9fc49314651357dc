"""What every encoder offers, and the checks that every vector passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import EncoderError
from engine.text.passage import TokenCounter, fit_title, passage_input

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """Makes vectors of texts. Safe to call from several threads."""

    @property
    def fingerprint(self) -> str:
        """Name the vector space: lower-case hexadecimal SHA-256 over all that shapes a vector."""

    @property
    def dimension(self) -> int:
        """Return the number of columns of a vector."""

    @property
    def max_tokens(self) -> int:
        """Return the window: most tokens of one input, prefix and special tokens included."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of whole passage inputs.

        Args:
            texts: as `passage_input` makes them; the encoder's passage prefix is added here.

        Returns:
            Tokens of each, prefix and special tokens included, in the order of `texts`.
        """

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Encode queries, each alone, so that a vector does not depend on its neighbours.

        A query longer than the window is encoded in windows of whole tokens; its vector is the
        normalised mean of theirs. Nothing is dropped.

        Returns:
            float32 of shape (len(queries), dimension), rows of unit length, in order.

        Raises:
            EncoderError: a vector is zero or not finite.
        """

    def encode_passages(self, passages: Sequence[tuple[str, str]]) -> Vectors:
        """Encode passages given as (title, text).

        A title is shortened as `fit_title` does for the encoder's window, and further where the
        text needs the room; the text never is.

        Returns:
            float32 of shape (len(passages), dimension), rows of unit length, in order.

        Raises:
            EncoderError: a text alone exceeds the window, or a vector is zero or not finite.
        """


def unit_rows(vectors: NDArray[np.floating], what: str) -> Vectors:
    """Scale rows to unit length.

    Args:
        vectors: shape (n, d).
        what: what the rows are of, for the message ("query", "passage").

    Returns:
        float32 of shape (n, d), freshly made.

    Raises:
        EncoderError: a row is zero or not finite.
    """
    wide = vectors.astype(np.float64)
    if not bool(np.isfinite(wide).all()):
        row = int(np.flatnonzero(~np.isfinite(wide).all(axis=1))[0])
        raise EncoderError(f"the encoder made a vector that is not finite for {what} {row}")
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    if not bool((lengths > 0.0).all()):
        row = int(np.flatnonzero(lengths == 0.0)[0])
        raise EncoderError(f"the encoder made a zero vector for {what} {row}")
    units: Vectors = (wide / lengths[:, np.newaxis]).astype(np.float32)
    return units


def fitting_inputs(
    passages: Sequence[tuple[str, str]], count_tokens: TokenCounter, max_tokens: int
) -> tuple[list[str], list[int]]:
    """Join titles and texts so that each input fits the window, shortening titles only.

    Args:
        passages: (title, text) each.
        count_tokens: tokens of a whole encoder input.
        max_tokens: the window.

    Returns:
        The inputs, and their tokens, in the order of `passages`.

    Raises:
        EncoderError: a text alone exceeds the window; the message names its place in the batch.
    """
    titles: dict[str, str] = {}
    for title, _ in passages:
        if title not in titles:
            titles[title] = fit_title(title, count_tokens, max_tokens)
    inputs = [passage_input(titles[title], text) for title, text in passages]
    counts = count_tokens(inputs)
    for row, count in enumerate(counts):
        if count > max_tokens:
            inputs[row], counts[row] = _squeeze(row, passages[row], count_tokens, max_tokens)
    return inputs, counts


def _squeeze(
    row: int, passage: tuple[str, str], count_tokens: TokenCounter, max_tokens: int
) -> tuple[str, int]:
    title, text = passage
    alone = count_tokens([text])[0]
    if alone > max_tokens:
        raise EncoderError(
            f"passage {row} has {alone} tokens and the encoder's window {max_tokens}; "
            "cut it with a smaller passages.max_tokens"
        )
    room = max_tokens - alone
    while room > 0:
        joined = passage_input(fit_title(title, count_tokens, max_tokens, room=room), text)
        count = count_tokens([joined])[0]
        if count <= max_tokens:
            return joined, count
        room -= count - max_tokens
    return text, alone
