"""What all encoders share: unit rows, fitting inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.encoders.encoder import fitting_inputs, unit_rows
from engine.encoders.hashing import HashingEncoder
from engine.errors import EncoderError

COUNT = HashingEncoder().count_tokens


def test_rows_are_scaled_to_unit_length() -> None:
    units = unit_rows(np.array([[3.0, 4.0], [0.0, 1e-30]]), "query")
    assert units.dtype == np.float32
    assert units.tolist() == [[np.float32(0.6), np.float32(0.8)], [0.0, 1.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_refused_by_row(bad: float) -> None:
    with pytest.raises(EncoderError, match="not finite for passage 1"):
        unit_rows(np.array([[1.0, 0.0], [bad, 1.0]]), "passage")


def test_a_zero_vector_is_refused_by_row() -> None:
    with pytest.raises(EncoderError, match="zero vector for query 2"):
        unit_rows(np.array([[1.0], [1.0], [0.0]]), "query")


@given(st.lists(st.tuples(st.text(max_size=500), st.text(max_size=16)), max_size=5))
def test_inputs_fit_the_window_and_end_with_the_whole_text(
    passages: list[tuple[str, str]],
) -> None:
    inputs, counts = fitting_inputs(passages, COUNT, 16)
    assert counts == COUNT(inputs)
    assert all(count <= 16 for count in counts)
    assert all(joined.endswith(text) for joined, (_, text) in zip(inputs, passages, strict=True))
