"""What is remembered stays within its bound; what was used longest ago falls out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.search.cache import BoundedCache
from engine.search.request import FieldTerms
from engine.search.run import Counted, terms_counted


def _counted(terms: int) -> Counted:
    names = tuple(f"term-{at}" for at in range(terms))
    counts = (1,) * terms
    return {"text_en": FieldTerms(names, counts, terms, terms, counts)}


def test_the_value_used_longest_ago_falls_out() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=40))
def test_the_weights_never_exceed_the_capacity(puts: list[tuple[int, int]]) -> None:
    cache: BoundedCache[int, int] = BoundedCache(10, lambda weight: weight)
    for key, weight in puts:
        cache.put(key, weight)
        held = [value for value in map(cache.get, range(6)) if value is not None]
        assert sum(held) <= 10
        assert len(cache) == len(held)
        assert cache.get(key) == (weight if weight <= 10 else None)


def test_counts_of_long_queries_take_the_room_of_their_terms() -> None:
    cache: BoundedCache[int, Counted] = BoundedCache(4_000, terms_counted)
    for key in range(100):
        cache.put(key, _counted(999))
    assert len(cache) == 4
    assert terms_counted({}) == 1
