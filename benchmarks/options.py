"""The options of the quality benchmark, and the configuration that they make."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.beir import HALVES
from engine.config import Config, EncoderConfig, JobsConfig, SearchConfig, load_config
from engine.contract import MODES

_DEADLINE_S = 600.0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _kept_folder() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return f"{cache}/octavo/vectors"


def parse_options(argv: Sequence[str] | None, description: str) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: a usage error (2), or help was asked for (0).
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--corpus", type=Path, action="append", metavar="DIR", help="may be given several times"
    )
    which.add_argument("--all", type=Path, metavar="FOLDER", help="every collection of a folder")
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument(
        "--half",
        choices=["all", *HALVES],
        default="all",
        help="ask one half of the queries, by a hash of their ids: decide by `tune`, publish "
        "`report`",
    )
    parser.add_argument(
        "--encoder",
        help="default, hashing, a model id or a folder; when not given: hashing for lexical alone, "
        "which needs no model and cuts passages by tokens of its own",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML, for everything that has no option here"
    )
    parser.add_argument("--limit-queries", type=_positive, metavar="N")
    parser.add_argument("--shards", type=_positive, default=2, metavar="N")
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="build in DIR/COLLECTION and keep it; default: a temporary folder",
    )
    parser.add_argument(
        "--vector-cache",
        metavar="FOLDER",
        help=f"where vectors are kept between runs, an empty name: nowhere; when not given: "
        f"{_kept_folder()}, but nowhere for hashing",
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write one JSON document, to standard output when no file is named",
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="FILE",
        help="write a TREC run; of several collections and modes: FILE.COLLECTION.MODE",
    )
    return parser.parse_args(argv)


def configure(options: argparse.Namespace, modes: Sequence[str], root: Path) -> Config:
    """Return the configuration of one collection.

    A slow machine must not change a measurement: deadlines are long, answers are whole.

    Args:
        options: as `parse_options` reads them.
        modes: those that are asked; `lexical` alone needs no model.
        root: of the collection.

    Raises:
        ConfigurationError: `--config` names a file that cannot be read.
    """
    config = load_config(options.config)
    model = options.encoder or ("hashing" if list(modes) == ["lexical"] else config.encoder.model)
    encoder = EncoderConfig(**config.encoder.model_dump() | {"model": model})
    kept = options.vector_cache
    if kept is None:
        kept = "" if model == "hashing" else _kept_folder()
    jobs = config.jobs.model_dump() | {"shards": options.shards, "vector_cache": kept}
    patience = {"deadline_s": _DEADLINE_S, "allow_partial": False}
    search = SearchConfig(**config.search.model_dump() | patience)
    update = {"encoder": encoder, "jobs": JobsConfig(**jobs), "search": search, "root": str(root)}
    return config.model_copy(update=update)
