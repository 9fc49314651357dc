"""Opening the encoder that a configuration names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engine.config import EncoderConfig
from engine.encoders.hashing import HashingEncoder
from engine.encoders.opening import open_encoder


def test_hashing_is_opened_with_its_dimension_and_window() -> None:
    encoder = open_encoder(EncoderConfig(model="hashing", dimension=64, max_tokens=32))
    assert isinstance(encoder, HashingEncoder)
    assert (encoder.dimension, encoder.max_tokens) == (64, 32)
    assert encoder.fingerprint == HashingEncoder(64, 32).fingerprint


def test_hashing_does_not_import_torch() -> None:
    code = (
        "import sys; from engine.config import EncoderConfig as C; "
        "from engine.encoders.opening import open_encoder as o; o(C(model='hashing')); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.split() == ["False", "False"]
