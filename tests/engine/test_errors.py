"""Errors: one root, stable codes, safe to pickle, nothing of the caller's text in them."""

from __future__ import annotations

import inspect
import pickle

import pytest

from engine import errors
from engine.contract import HTTP_STATUS
from engine.errors import EngineError

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, EngineError) and value is not EngineError
]


def make(kind: type[EngineError]) -> EngineError:
    """Make an error of a class with a value for each parameter."""
    values = {"str": "text", "int": 3, "float": 0.5}
    signature = inspect.signature(kind.__init__, eval_str=True)
    arguments = [
        values.get(getattr(parameter.annotation, "__name__", "str"), "text")
        for name, parameter in signature.parameters.items()
        if name not in {"self", "args", "kwargs"}
    ]
    return kind(*arguments)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_pickles_with_its_fields(kind: type[EngineError]) -> None:
    error = make(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_every_code_is_of_one_class_and_says_whose_it_is() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)
    for code in codes:
        assert code in HTTP_STATUS or code.startswith("octavo_")


def test_every_code_of_the_contract_has_its_error() -> None:
    assert set(HTTP_STATUS) <= {kind.code for kind in CLASSES}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_message_is_one_line_without_a_full_stop(kind: type[EngineError]) -> None:
    message = str(make(kind))
    assert message
    assert "\n" not in message
    assert not message.endswith(".")


def test_only_transient_errors_are_retryable() -> None:
    assert {kind.__name__ for kind in CLASSES if kind.retryable} == {
        "CatalogNotHeldError",
        "ContentionError",
        "GenerationNotOpenError",
        "OverloadedError",
        "RuntimeDisabledError",
        "StaleVersionError",
    }
