"""Reading the credential files: YAML, of which JSON is a part, of an exact shape."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from engine.errors import ConfigurationError


class _Loader(yaml.SafeLoader):
    """YAML in which a key stands once: of two lists of denied subjects, none may be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, or refuse one that names a key twice."""
        found = super().construct_mapping(node, deep)
        if len(found) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key is given twice", None)
        return found


def parse_tree[M: BaseModel](model: type[M], text: str, source: str) -> M:
    """Read a text as YAML of a model's shape. The message repeats nothing of the text.

    Raises:
        ConfigurationError: it is not YAML, or does not have the shape.
    """
    try:
        tree = yaml.load(text, _Loader)
    # the latter: scalars that look like a date, a number or a tag's, and are none
    except (yaml.YAMLError, RecursionError, ValueError, KeyError, AttributeError):
        raise ConfigurationError(f"{source}: is not YAML") from None
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigurationError(f"{source}: {where}: {first['msg']}") from None
