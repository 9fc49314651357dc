"""Frames: what goes in comes out, to the bit, errors included."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine import errors
from engine.errors import EngineError, FrameError, GenerationNotOpenError, OverloadedError
from engine.ids import BaseId, ItemId, RevisionId, ShardId
from engine.search.request import (
    Answer,
    Candidates,
    Depth,
    Explained,
    ExplainQuery,
    FieldTerms,
    Found,
    Frontier,
    Generations,
    GenerationsQuery,
    Hydrated,
    HydrateQuery,
    Passage,
    PassageFacts,
    Pin,
    Positions,
    Question,
    Refined,
    RefineQuery,
    SearchQuery,
    SegmentFacts,
    ShardFacts,
    Statistics,
    StatisticsQuery,
)
from engine.search.wire import (
    MAGIC,
    pack_answer,
    pack_error,
    pack_question,
    unpack_answer,
    unpack_question,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
shards = st.integers(0, 4095).map(ShardId)
counts = st.integers(0, 2**40)
floats = st.floats(allow_nan=False, allow_infinity=False)
pins = st.builds(Pin, st.integers(1, 2**31), texts)
readables = st.none() | st.frozensets(texts.map(BaseId), max_size=4)


def _array(dtype: str, size: int) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    if dtype == "int32":
        return arrays(np.int32, size, elements=st.integers(0, 2**31 - 1))
    elements = st.floats(width=32) if dtype == "float32" else st.floats(width=64)
    return arrays(np.dtype(dtype), size, elements=elements)


@st.composite
def field_terms(draw: st.DrawFn) -> FieldTerms:
    terms = tuple(draw(st.lists(texts, unique=True, max_size=4)))
    each = st.lists(counts, min_size=len(terms), max_size=len(terms)).map(tuple)
    return FieldTerms(terms, draw(each), draw(counts), draw(counts), draw(each))


@st.composite
def positions(draw: st.DrawFn) -> Positions:
    size = draw(st.integers(0, 4))
    return Positions(draw(_array("int32", size)), draw(_array("int32", size)))


@st.composite
def candidates(draw: st.DrawFn) -> Candidates:
    size = draw(st.integers(0, 4))
    return Candidates(
        shard=draw(shards),
        segments=draw(_array("int32", size)),
        ordinals=draw(_array("int32", size)),
        items=draw(_array("int32", size)),
        starts=draw(_array("int32", size)),
        fields=draw(_array("int32", size)),
        lexical=draw(_array("float64", size)),
        semantic=draw(_array("float64", size)),
        item_ids=tuple(ItemId(item) for item in draw(st.lists(texts, max_size=3))),
        field_names=("text_en", "text_de"),
        frontier=Frontier(
            draw(st.dictionaries(texts, floats, max_size=2)), draw(st.none() | floats)
        ),
        certified=draw(st.booleans()),
        excess_errors=draw(st.dictionaries(texts, floats, max_size=2)),
    )


fields = st.dictionaries(texts, field_terms(), max_size=3)
places = st.dictionaries(shards, positions(), max_size=3)
questions: st.SearchStrategy[Question] = st.one_of(
    st.builds(StatisticsQuery, pins, readables, texts),
    st.builds(
        SearchQuery,
        pins,
        readables,
        st.none() | texts.map(BaseId),
        fields,
        st.none() | _array("float32", 8),
        floats,
        floats,
        st.dictionaries(shards, st.builds(Depth, counts, counts), max_size=3),
        st.booleans(),
    ),
    st.builds(RefineQuery, pins, fields, floats, floats, places),
    st.builds(HydrateQuery, pins, texts, places),
    st.builds(
        ExplainQuery,
        pins,
        st.dictionaries(texts, st.lists(texts, max_size=3).map(tuple), max_size=2),
        places,
    ),
    st.just(GenerationsQuery()),
)
passages = st.builds(
    Passage,
    texts.map(BaseId),
    texts.map(ItemId),
    texts.map(RevisionId),
    texts,
    texts,
    counts,
    texts,
    texts,
    texts,
)
facts = st.builds(
    ShardFacts,
    shards,
    st.lists(
        st.builds(SegmentFacts, texts, st.booleans(), st.none() | st.floats(0, 1)), max_size=2
    ).map(tuple),
    st.lists(
        st.builds(
            PassageFacts,
            texts,
            counts,
            texts,
            counts,
            counts,
            counts,
            counts,
            st.lists(counts, max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)
answers: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Statistics, fields),
    st.builds(Found, st.lists(candidates(), max_size=3).map(tuple)),
    st.builds(Refined, st.dictionaries(shards, _array("float64", 3), max_size=3)),
    st.builds(
        Hydrated,
        st.dictionaries(shards, st.lists(passages, max_size=2).map(tuple), max_size=2),
    ),
    st.builds(Explained, st.lists(facts, max_size=2).map(tuple)),
    st.builds(
        Generations,
        st.dictionaries(st.integers(1, 99), st.lists(shards, max_size=3).map(tuple), max_size=3),
    ),
)


def plain(value: Any) -> Any:
    """Return a value in which arrays are their dtype and bytes, so that `==` compares bits."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return type(value).__name__, [plain(getattr(value, name)) for name in names]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(one) for one in value)
    return value


@given(questions, st.floats(0, 600))
def test_a_question_arrives_as_it_was_sent(question: Question, seconds: float) -> None:
    arrived, left = unpack_question(pack_question(question, seconds))
    assert (plain(arrived), left) == (plain(question), seconds)


@given(answers)
def test_an_answer_arrives_as_it_was_sent(answer: Answer) -> None:
    assert plain(unpack_answer(pack_answer(answer), type(answer))) == plain(answer)


@pytest.mark.parametrize(
    "error",
    [
        OverloadedError("busy", 2.5),
        GenerationNotOpenError(7),
        errors.CatalogNotHeldError(7),
        errors.SegmentRefusedError("seg-1", "it is cut short"),
        errors.StaleVersionError("item a", 1, 2),
        errors.ResourceUnavailableError(),
        errors.JavaError("no Java"),
    ],
)
def test_an_error_is_rebuilt_on_the_other_side(error: EngineError) -> None:
    with pytest.raises(type(error)) as caught:
        unpack_answer(pack_error(error), Found)
    assert type(caught.value) is type(error)
    assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))


def test_an_answer_of_another_kind_is_refused() -> None:
    frame = pack_answer(Generations({}))
    with pytest.raises(FrameError, match="is not Found"):
        unpack_answer(frame, Found)
    with pytest.raises(FrameError, match="not a question"):
        unpack_question(frame)


@given(questions, st.integers(0, 200))
def test_a_damaged_frame_is_refused(question: Question, cut: int) -> None:
    frame = pack_question(question, 1.0)
    for damaged in (frame[: min(cut, 20)], b"OVF9" + frame[len(MAGIC) :], b"", frame[:9]):
        with pytest.raises(FrameError):
            unpack_question(damaged)
