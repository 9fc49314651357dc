"""The audiences of an issuer."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from engine.access_config import IssuerConfig


@pytest.mark.parametrize("audience", [[], [""], ["kb", ""]])
def test_an_issuer_without_a_named_audience_is_refused(audience: list[str]) -> None:
    settings = {"name": "corp", "issuer": "https://id.example", "audience": audience}
    with pytest.raises(ValidationError, match="audience"):
        IssuerConfig.model_validate(settings)
