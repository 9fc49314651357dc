"""Torch's number of threads is the process's: every test leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    """Restore the number of threads after a test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
