"""The configuration: one typed tree, read from YAML, unknown keys refused.

Every key has its meaning here, its default here, and its explanation in `configs/local.yaml`.
Secrets are never keys of it.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.access_config import AuditConfig, AuthConfig, FairnessConfig
from engine.errors import ConfigurationError


class Section(BaseModel):
    """A branch of the tree: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


EncoderDtype = Literal["float32", "float16", "bfloat16"]


class EncoderConfig(Section):
    """What turns text into vectors."""

    model: str = "default"
    """`default` (packaged multilingual-e5-small), `hashing` (tests), a model id or a folder."""
    dimension: int = Field(256, ge=8, le=8192)
    """Dimension of the hashing encoder; models know their own."""
    pooling: Literal["auto", "mean", "cls", "last"] = "auto"
    query_prefix: str | None = None
    """None: the model family's own (E5: "query: ")."""
    passage_prefix: str | None = None
    max_tokens: int = Field(512, ge=16, le=32768)
    dtype: EncoderDtype = "float32"
    """In which the model runs; its vectors are float32 in any case."""
    device: str = "auto"
    threads: int = Field(2, ge=1, le=256)
    batch_size: int = Field(32, ge=1, le=4096)


class PassagesConfig(Section):
    """How revisions are cut."""

    max_tokens: int = Field(128, ge=16, le=8192)


class IndexConfig(Section):
    """Ranking constants and the vector index."""

    k1: float = Field(0.9, ge=0.0, le=10.0)
    b: float = Field(0.4, ge=0.0, le=1.0)
    semantic_search: Literal["auto", "exact", "approximate"] = "auto"
    exact_limit: int = Field(200_000, ge=0)
    """`auto` searches a segment exactly up to this many vectors."""


class SearchConfig(Section):
    """How a query runs."""

    rank_window: int = Field(200, ge=200, le=10_000)
    depth: int = Field(100, ge=50, le=100_000)
    deadline_s: float = Field(10.0, gt=0.0, le=600.0)
    allow_partial: bool = True
    threads: int = Field(2, ge=1, le=256)
    query_cache: int = Field(1024, ge=0)


class CatalogConfig(Section):
    """How replicas follow the store."""

    poll_s: float = Field(0.25, gt=0.0, le=60.0)
    max_staleness_s: float = Field(1.0, gt=0.0, le=600.0)


class JvmConfig(Section):
    """The one JVM of a process."""

    heap_mb: int = Field(1024, ge=64)


class ServeConfig(Section):
    """The Ray Serve application."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)
    groups: int = Field(1, ge=1, le=64)
    """Shard groups; 1 is searched inside the coordinator's process unless `group_deployments`."""
    group_deployments: bool = False
    """Run even a single group as a deployment of its own."""
    replicas_per_group: int = Field(1, ge=1, le=64)
    encoder_deployment: bool = False
    ingress_replicas: int = Field(1, ge=1, le=256)
    max_ongoing_requests: int = Field(64, ge=1, le=10_000)
    max_body_bytes: int = Field(65_536, ge=1024)
    body_timeout_s: float = Field(10.0, gt=0.0, le=600.0)
    """A body that has not come by then is refused."""
    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted besides the listening address; empty: loopback names only."""
    allowed_origins: tuple[str, ...] = ()
    haproxy: bool = True
    """Serve behind HAProxy where Ray carries it; else the Python proxy."""


class JobsConfig(Section):
    """Ray batch jobs."""

    cpus: int | None = Field(None, ge=1)
    """CPUs declared to a local Ray; None: the machine's."""
    address: str | None = None
    """Address of a running Ray cluster; None starts a private local one."""
    encoder_actors: int = Field(1, ge=1, le=4096)
    gpus_per_encoder: float = Field(0.0, ge=0.0, le=8.0)
    batch_rows: int = Field(64, ge=1)
    commit_rows: int = Field(500, ge=1)
    """Revisions committed to the store at a time."""
    shards: int = Field(1, ge=1, le=4096)
    """Shards of a first generation; later ones inherit."""
    vector_cache: str = ""
    """A folder, outside every root, of vectors by text and encoder; empty: none is kept."""


class Config(Section):
    """The whole tree."""

    root: str = ".octavo"
    organization: str = ""
    encoder: EncoderConfig = EncoderConfig()
    passages: PassagesConfig = PassagesConfig()
    index: IndexConfig = IndexConfig()
    search: SearchConfig = SearchConfig()
    catalog: CatalogConfig = CatalogConfig()
    jvm: JvmConfig = JvmConfig()
    serve: ServeConfig = ServeConfig()
    auth: AuthConfig = AuthConfig()
    fairness: FairnessConfig = FairnessConfig()
    audit: AuditConfig = AuditConfig()
    jobs: JobsConfig = JobsConfig()


def _known_keys(section: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    for name in location:
        field = section.model_fields.get(str(name))
        if field is None or not isinstance(field.annotation, type):
            break
        if issubclass(field.annotation, BaseModel):
            section = field.annotation
    return list(section.model_fields)


def _explain(error: ValidationError, source: str) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    location = tuple(first["loc"])
    name = ".".join(str(part) for part in location)
    if first["type"] != "extra_forbidden":
        return f"{source}: {name}: {first['msg']}"
    near = difflib.get_close_matches(str(location[-1]), _known_keys(Config, location[:-1]), n=1)
    if not near:
        near = sorted(_known_keys(Config, location[:-1]))[:1]
    nearest = ".".join([*(str(part) for part in location[:-1]), near[0]])
    return f"{source}: unknown key {name}; did you mean {nearest}?"


def parse_config(tree: dict[str, Any], source: str = "configuration") -> Config:
    """Check a configuration tree.

    Args:
        tree: nested mapping as read from YAML.
        source: what to call it in an error.

    Raises:
        ConfigurationError: an unknown key (with the nearest known name) or a bad value.
    """
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, source)) from None


def load_config(path: Path | None = None, **overrides: Any) -> Config:
    """Read a YAML file and lay overrides (top-level keys, None ignored) over it.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML, or does not fit the tree.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            loaded = yaml.safe_load(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: cannot be read: {error}") from None
        except yaml.YAMLError as error:
            line = str(error).splitlines()[0]
            raise ConfigurationError(f"{path}: is not YAML: {line}") from None
        if loaded is not None and not isinstance(loaded, dict):
            raise ConfigurationError(f"{path}: must hold a mapping")
        tree = loaded or {}
    tree |= {name: value for name, value in overrides.items() if value is not None}
    return parse_config(tree, str(path) if path else "configuration")


def dump_config(config: Config) -> str:
    """Return a configuration as JSON text, to be handed to another process."""
    return json.dumps(config.model_dump(mode="json"), sort_keys=True)


def undump_config(text: str) -> Config:
    """Return what `dump_config` wrote."""
    return parse_config(json.loads(text))
