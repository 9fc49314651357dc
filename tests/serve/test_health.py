"""When a replica is given up."""

from __future__ import annotations

import pytest

from engine.errors import InternalError
from serve.health import Health


class State:
    """What is observed, and the time; both set by hand."""

    def __init__(self) -> None:
        self.now = 5.0
        self.well = True

    def health(self) -> Health:
        return Health(lambda: self.well, patience_s=30.0, clock=lambda: self.now)


def test_an_outage_is_tolerated_for_a_while_and_then_the_replica_is_given_up() -> None:
    state = State()
    health = state.health()
    state.now, state.well = 34.9, False
    health.require()
    state.now = 35.0
    with pytest.raises(InternalError):
        health.require()


def test_a_recovery_begins_the_patience_anew() -> None:
    state = State()
    health = state.health()
    state.now = 34.0
    health.require()
    state.now, state.well = 63.0, False
    health.require()
    state.now = 64.0
    with pytest.raises(InternalError):
        health.require()
