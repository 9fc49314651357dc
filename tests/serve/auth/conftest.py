"""Fixtures of the credentials: an issuer that runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.auth.issuer import Issuer, running_issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer
