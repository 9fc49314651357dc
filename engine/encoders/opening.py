"""Opening the encoder that a configuration names."""

from __future__ import annotations

from engine.config import EncoderConfig
from engine.encoders.encoder import Encoder
from engine.encoders.hashing import HashingEncoder


def open_encoder(config: EncoderConfig) -> Encoder:
    """Open an encoder: `default`, `hashing`, a model id or a folder.

    Nothing is fetched from a network: a model id must be in the local Hugging Face cache already.
    Torch is imported only for a model.

    Args:
        config: the `encoder` branch of the configuration.

    Raises:
        EncoderError: it cannot be opened; the message says what to do.
    """
    if config.model == "hashing":
        return HashingEncoder(config.dimension, config.max_tokens)
    from engine.encoders.transformer import TransformerEncoder

    return TransformerEncoder.open(config)
