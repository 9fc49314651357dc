"""Cutting a content into passages: spans that an encoder's window holds whole.

Semchunk finds the structure (paragraphs, lines, sentences, clauses) by estimated token counts;
every span is then measured as it will be encoded, and split further where the estimate was low.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from semchunk.semchunk import chunk

from engine.errors import EncoderError
from engine.text.passage import TokenCounter, fit_title, passage_input

_BLOCK_CHARS = 20_000
"""Semchunk sees this much at a time: bounds its recursion, whatever the text."""

_WORD_CHARS = 32
"""Token counts of words up to this length are remembered during one cut."""

_BATCH_TEXTS = 256

_PUNCTUATION = str.maketrans(
    "。．｡！？；，、､：（）「」『』《》【】।؟؛،",
    "...!?;,,,:()[][][][].?;,",
)
"""Punctuation that semchunk does not know, as what it knows: one code point for one."""


_CLAUSE = re.compile(r"[^.,!?;:()\[\]]*[.,!?;:()\[\]]*")

_CJK = "\u2e80-\u2fff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SPACE_BESIDE_CJK = re.compile(rf"(?<=[{_CJK}]) | (?=[{_CJK}])")
_JOINER = "\u2060"
"""Stands for a space beside a CJK character, which is no better a place to cut than any other."""

_ENOUGH = 64


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of code points of a content."""

    start: int
    end: int


class _Estimator:
    """Token counts of texts as sums over words and clauses, remembered while a content is cut."""

    def __init__(self, count_tokens: TokenCounter, overhead: int, budget: int) -> None:
        self._count_tokens = count_tokens
        self._overhead = overhead
        self._budget = budget
        self._after_mark = count_tokens(["."])[0]
        self._words: dict[str, int] = {}
        self._clauses: dict[str, int] = {}

    def prime(self, text: str) -> None:
        """Count the words and clauses of a text in batches."""
        words: set[str] = set()
        clauses: set[str] = set()
        for word in text.split():
            if len(word) <= _WORD_CHARS:
                words.add(word)
            else:
                clauses.update(c for c in _CLAUSE.findall(word) if len(c) <= _WORD_CHARS)
        for batch in _batches(sorted(words)):
            counts = self._count_tokens(batch)
            self._words |= {
                w: max(1, n - self._overhead) for w, n in zip(batch, counts, strict=True)
            }
        for batch in _batches(sorted(clauses)):
            counts = self._count_tokens(["." + clause for clause in batch])
            self._clauses |= {
                c: max(1, n - self._after_mark) for c, n in zip(batch, counts, strict=True)
            }

    def __call__(self, text: str) -> int:
        """Return about how many tokens a text has; the same for the same text."""
        total = 0
        for word in text.split():
            if len(word) > _WORD_CHARS:
                total += self._long(word)
                continue
            count = self._words.get(word)
            if count is None:
                count = max(1, self._count_tokens([word])[0] - self._overhead)
                self._words[word] = count
            total += count
        if len(text) == 1:  # semchunk would split a single character for ever
            return min(total, self._budget)
        return total

    def _long(self, word: str) -> int:
        total = 0
        for clause in _CLAUSE.findall(word):
            count = self._clauses.get(clause)
            total += self._clause(clause) if count is None else count
            if total > _ENOUGH * self._budget:  # far too much, however much
                return total
        return total

    def _clause(self, clause: str) -> int:
        head = clause[: 16 * (self._budget + 1)]
        count = max(1, self._count_tokens(["." + head])[0] - self._after_mark)
        if len(head) < len(clause):
            return max(count * len(clause) // len(head), self._budget + 1)
        if len(clause) <= _WORD_CHARS:
            self._clauses[clause] = count
        return count


def cut(content: str, title: str, count_tokens: TokenCounter, max_tokens: int) -> list[Span]:
    """Cut a content into passages.

    Spans are in order, do not overlap, begin and end with a character that is not blank, and
    together hold every such character. They avoid splitting a character from its combining marks,
    joiners and modifiers, unless it exceeds the window alone. The same input gives the same spans.

    Args:
        content: any text.
        title: of the revision; encoded before each passage, shortened by `fit_title`.
        count_tokens: tokens of a whole encoder input (`Encoder.count_tokens`).
        max_tokens: the window: `passage_input(fit_title(title), text)` never has more tokens, save
            that the title gives way to a single character that needs the room.

    Returns:
        Half-open ranges of code points of `content`; none when it is blank.

    Raises:
        EncoderError: the window does not hold even one character of the content.
    """
    head = fit_title(title, count_tokens, max_tokens)
    overhead, headed = count_tokens(["", passage_input(head, "")])
    budget = max(1, max_tokens - headed)
    estimate = _Estimator(count_tokens, overhead, budget)
    softened = _SPACE_BESIDE_CJK.sub(_JOINER, content.translate(_PUNCTUATION))
    estimate.prime(softened)
    drafts = _pack(_drafts(softened, estimate, budget), softened, estimate, budget)
    spans = list(_whole_clusters(content, _trimmed(content, drafts)))
    return _measured(content, head, spans, count_tokens, max_tokens)


def _batches[T](values: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(values), _BATCH_TEXTS):
        yield values[start : start + _BATCH_TEXTS]


def _blocks(text: str) -> Iterator[Span]:
    """Cut at a paragraph's, line's or word's end, if the second half of a block has one."""
    start = 0
    while len(text) - start > _BLOCK_CHARS:
        floor, ceiling = start + _BLOCK_CHARS // 2, start + _BLOCK_CHARS
        end = ceiling
        for mark in ("\n\n", "\n", " "):
            found = text.rfind(mark, floor, ceiling)
            if found >= 0:
                end = found + len(mark)
                break
        yield Span(start, end)
        start = end
    yield Span(start, len(text))


def _semchunk(text: str, estimate: _Estimator, budget: int) -> list[tuple[int, int]]:
    made = chunk(text, budget, estimate, memoize=False, offsets=True)
    assert isinstance(made, tuple), "semchunk gives (texts, offsets) when asked for offsets"
    return sorted(made[1])


def _drafts(text: str, estimate: _Estimator, budget: int) -> Iterator[Span]:
    for block in _blocks(text):
        covered = block.start
        for start, end in _semchunk(text[block.start : block.end], estimate, budget):
            yield from _stripped(text, covered, block.start + start)  # left out: nothing, usually
            yield from _stripped(text, block.start + start, block.start + end)
            covered = block.start + end
        yield from _stripped(text, covered, block.end)


def _stripped(text: str, start: int, end: int) -> Iterator[Span]:
    piece = text[start:end]
    body = piece.strip()
    if body:
        first = start + len(piece) - len(piece.lstrip())
        yield Span(first, first + len(body))


def _trimmed(content: str, spans: Iterable[Span]) -> Iterator[Span]:
    for span in spans:
        yield from _stripped(content, span.start, span.end)


def _pack(spans: Iterable[Span], text: str, estimate: _Estimator, budget: int) -> Iterator[Span]:
    """Join neighbours that fit the window together: semchunk leaves a short tail per paragraph."""
    held: Span | None = None
    held_tokens = 0
    for span in spans:
        tokens = estimate(text[span.start : span.end])
        if held is not None and held_tokens + tokens <= budget:
            held, held_tokens = Span(held.start, span.end), held_tokens + tokens
            continue
        if held is not None:
            yield held
        held, held_tokens = span, tokens
    if held is not None:
        yield held


def _continues(text: str, index: int) -> bool:
    """Say whether the character at `index` belongs to the one before it."""
    character, before = text[index], text[index - 1]
    return (
        unicodedata.category(character) in {"Mn", "Mc", "Me"}
        or character == "\u200d"
        or before == "\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _cluster_start(text: str, index: int, floor: int) -> int:
    """Return where the character cluster around `index` starts, or `index` if not after `floor`."""
    start = index
    while start > floor and _continues(text, start):
        start -= 1
    return start if start > floor else index


def _whole_clusters(content: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Move a boundary between touching spans to the start of the cluster that it would split."""
    before: Span | None = None
    for span in spans:
        if before is not None and before.end == span.start:
            start = _cluster_start(content, span.start, before.start)
            yield Span(before.start, start)
            before = Span(start, span.end)
            continue
        if before is not None:
            yield before
        before = span
    if before is not None:
        yield before


def _measured(
    content: str, head: str, spans: list[Span], count_tokens: TokenCounter, max_tokens: int
) -> list[Span]:
    """Split what exceeds the window, until nothing does."""
    fitting: list[Span] = []
    waiting = spans
    while waiting:
        exceeding: list[Span] = []
        for batch in _batches(waiting):
            inputs = [passage_input(head, content[span.start : span.end]) for span in batch]
            for span, count in zip(batch, count_tokens(inputs), strict=True):
                (fitting if count <= max_tokens else exceeding).append(span)
        waiting = []
        for span in exceeding:
            if span.end - span.start > 1:
                waiting.extend(_halves(content, span))
                continue
            if count_tokens([content[span.start : span.end]])[0] > max_tokens:
                raise EncoderError(
                    f"a window of {max_tokens} tokens does not hold the character at "
                    f"{span.start}; raise passages.max_tokens"
                )
            fitting.append(span)
    return sorted(fitting, key=lambda span: span.start)


def _halves(content: str, span: Span) -> Iterator[Span]:
    middle = (span.start + span.end) // 2
    quarter = (span.end - span.start) // 4
    floor, ceiling = middle - quarter, middle + quarter
    blank = max(content.rfind(" ", floor, ceiling), content.rfind("\n", floor, ceiling))
    at = blank if blank > span.start else _cluster_start(content, middle, span.start)
    yield from _stripped(content, span.start, at)
    yield from _stripped(content, at, span.end)
