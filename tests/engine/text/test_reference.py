"""The fixed sentences of the reference sample."""

from __future__ import annotations

import hashlib
from collections import Counter

from engine.text.language import detect
from engine.text.reference import reference_sentences


def test_there_are_enough_distinct_sentences() -> None:
    sentences = reference_sentences()
    assert len(sentences) == len(set(sentences)) == 320
    assert all(sentence == sentence.strip() and "{" not in sentence for sentence in sentences)


def test_any_head_is_spread_over_the_languages() -> None:
    found = Counter(detect(sentence) for sentence in reference_sentences()[:256])
    assert set(found) >= {"en", "de", "fr", "zh"}
    assert all(found[code] >= 60 for code in ("en", "de", "fr", "zh"))


def test_the_sentences_never_change() -> None:
    text = "\n".join(reference_sentences())
    expected = "d487d1fb223c42004232e670c5a913c4cbba02c6f1faa7df79ce86780fb29492"
    assert hashlib.sha256(text.encode()).hexdigest() == expected
