"""The configuration: one typed tree, unknown keys refused by their nearest known name."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import Config, dump_config, load_config, parse_config, undump_config
from engine.errors import ConfigurationError


def test_an_empty_tree_is_the_defaults() -> None:
    assert parse_config({}) == Config()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"rooot": "x"}, "unknown key rooot; did you mean root?"),
        ({"search": {"dept": 1}}, "unknown key search.dept; did you mean search.depth?"),
        (
            {"index": {"exact_limt": 1}},
            "unknown key index.exact_limt; did you mean index.exact_limit?",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_name(
    tree: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_config(tree, "octavo.yaml")
    assert str(caught.value) == f"octavo.yaml: {message}"


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"search": {"rank_window": 199}}, "search.rank_window"),
        ({"index": {"b": 1.5}}, "index.b"),
        ({"serve": {"port": 0}}, "serve.port"),
        ({"search": {"deadline_s": "soon"}}, "search.deadline_s"),
    ],
)
def test_a_bad_value_is_refused_by_its_key(tree: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^configuration: {key}: "):
        parse_config(tree)


def test_a_file_is_read_and_overrides_lie_over_it(tmp_path: Path) -> None:
    path = tmp_path / "octavo.yaml"
    path.write_text("root: /data\nsearch:\n  depth: 60\n", "utf-8")
    config = load_config(path, root="/other", organization=None)
    assert (config.root, config.search.depth, config.organization) == ("/other", 60, "")
    path.write_text("", "utf-8")
    assert load_config(path) == Config()


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "\udcff"])
def test_what_is_not_a_mapping_of_yaml_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "octavo.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_a_configuration_survives_the_way_to_another_process() -> None:
    config = parse_config({"root": "/x", "serve": {"allowed_hosts": ["a", "b"]}})
    assert undump_config(dump_config(config)) == config


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().root = "elsewhere"  # type: ignore[misc]  # that it is refused is the point
