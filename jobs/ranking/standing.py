"""Items in order, best first, and what of that order rounding could not decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jobs.ranking.corpus import Float64, Mask, Passages, Rows

TOLERANCE = 1e-12
"""Scores that differ by no more, relative to the scale of their side, are equal up to rounding.

Both ways of computing a score round less than a thousand times, each time by at most 2^-53.
"""

Ingredients = Callable[[int], tuple[object, ...]]
"""What a passage's score is computed from; equal ingredients make equal scores in any program
that always does the same operations in the same order."""


def heads(passages: Passages, scores: Float64, chosen: Mask) -> Rows:
    """Return each item's best chosen passage, best item first.

    Of equal passages of an item the one that starts first wins; equal items are ordered by id.
    """
    rows = np.flatnonzero(chosen)
    items, starts, values = passages.items[rows], passages.starts[rows], scores[rows]
    rows = rows[np.lexsort((starts, -values, items))]
    first = np.ones(len(rows), np.bool_)
    first[1:] = passages.items[rows[1:]] != passages.items[rows[:-1]]
    best = rows[first]
    found: Rows = best[np.lexsort((passages.items[best], -scores[best]))]
    return found


@dataclass(frozen=True, slots=True)
class Standing:
    """A ranking of items.

    Attributes:
        rows: the passage that stands for each item, best first.
        scores: of those, float64, descending.
        places: by item code, its index in `rows`; -1 where it is not ranked.
        tolerance: how far apart scores may be and rounding still decide their order.
        ingredients: see `Ingredients`.
    """

    rows: Rows
    scores: Float64
    places: Rows
    tolerance: float
    ingredients: Ingredients
    _exact: dict[tuple[int, int], bool] = field(default_factory=dict)

    @staticmethod
    def of(
        passages: Passages, scores: Float64, chosen: Mask, scale: float, ingredients: Ingredients
    ) -> Standing:
        """Rank the items of the chosen passages.

        Args:
            passages: the columns.
            scores: float64 of shape (n,).
            chosen: which passages are on this side.
            scale: the largest score that could be, at least 1.
            ingredients: what a passage's score is made of.
        """
        rows = heads(passages, scores, chosen)
        places = np.full(len(passages.item_ids), -1, np.int64)
        places[passages.items[rows]] = np.arange(len(rows))
        return Standing(rows, scores[rows], places, TOLERANCE * max(1.0, scale), ingredients)

    def __len__(self) -> int:
        """Return how many items are ranked."""
        return len(self.rows)

    def place(self, item: int) -> int | None:
        """Return the index of an item, or None when it is not ranked."""
        at = int(self.places[item])
        return None if at < 0 else at

    def reach(self, place: int) -> tuple[int, int]:
        """Return the first and the last index that rounding could give to a place.

        Both are the place itself, unless neighbours score the same up to rounding and not because
        their scores are made of the same.
        """
        first = last = place
        while first > 0 and self.scores[first - 1] - self.scores[first] <= self.tolerance:
            first -= 1
        end = len(self.scores) - 1
        while last < end and self.scores[last] - self.scores[last + 1] <= self.tolerance:
            last += 1
        return (place, place) if self._decided(first, last) else (first, last)

    def _decided(self, first: int, last: int) -> bool:
        if (first, last) not in self._exact:
            one = self.ingredients(int(self.rows[first]))
            rest = self.rows[first + 1 : last + 1]
            self._exact[first, last] = all(self.ingredients(int(row)) == one for row in rest)
        return self._exact[first, last]
