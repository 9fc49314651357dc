"""The encoder's input of a passage: title and text joined, and how a long title is shortened.

Chunking measures with these functions and encoders encode with them, so what was measured is what
is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

TokenCounter = Callable[[Sequence[str]], list[int]]
"""Tokens of the whole encoder input of each text: passage prefix and special tokens included."""

MAX_TITLE_TOKENS = 64
"""A title takes at most this many tokens of an encoder input, and at most half of the window."""


def passage_input(title: str, text: str) -> str:
    """Return what is encoded for a passage, without the encoder's own prefix.

    The title stands before the text, on a line of its own. A blank title adds nothing.
    """
    title = title.strip()
    return f"{title}\n{text}" if title else text


def fit_title(
    title: str, count_tokens: TokenCounter, max_tokens: int, *, room: int = MAX_TITLE_TOKENS
) -> str:
    """Return the title, or the longest head of it that leaves half of the window to the text.

    The stored title is never changed: this is for the encoder's input only. The head ends at a
    space where there is one in its second half, else after a code point.

    Args:
        title: any text.
        count_tokens: tokens of a whole encoder input.
        max_tokens: the window, in tokens of a whole encoder input.
        room: most tokens of the title, besides half of the window.

    Returns:
        A head of `title.strip()` of at most `min(room, (max_tokens - overhead) // 2)` tokens,
        where the overhead is the tokens of an empty input; possibly empty.
    """
    title = title.strip()
    if not title:
        return ""
    overhead, whole = count_tokens(["", title])
    budget = min(room, (max_tokens - overhead) // 2)
    if whole - overhead <= budget:
        return title
    low, high = 0, len(title)
    while low < high:  # the longest head that fits: counts grow with the head
        middle = (low + high + 1) // 2
        if count_tokens([title[:middle]])[0] - overhead <= budget:
            low = middle
        else:
            high = middle - 1
    head = title[:low]
    space = head.rfind(" ")
    if not title[low : low + 1].isspace() and space > low // 2:
        head = head[:space]
    return head.rstrip()
