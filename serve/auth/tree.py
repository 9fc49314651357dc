"""Reading the credential files: YAML, of which JSON is a part, of an exact shape."""

from __future__ import annotations

import yaml
from pydantic import BaseModel, ValidationError

from engine.errors import ConfigurationError


def parse_tree[M: BaseModel](model: type[M], text: str, source: str) -> M:
    """Read a text as YAML of a model's shape. The message repeats nothing of the text.

    Raises:
        ConfigurationError: it is not YAML, or does not have the shape.
    """
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        raise ConfigurationError(f"{source}: is not YAML") from None
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigurationError(f"{source}: {where}: {first['msg']}") from None
