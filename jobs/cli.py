"""The command line: `octavo`. Here the commands are put together; each lives in `jobs.commands`."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Annotated

import typer

from jobs.commands import asking, bases, building, content, inspecting, serving, verifying
from jobs.commands.call import ConfigOption, DebugOption, Globals, RootOption

_HELP = """Octavo: a search engine for published knowledge.

Put revisions in, build an index, ask:

`octavo base create handbook --title "Handbook" --owner alice --scope public`

`octavo ingest docs/ --base handbook --publish`

`octavo reindex --shards 3`

`octavo search "how do I deploy?"`
"""

app = typer.Typer(
    name="octavo",
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"octavo {version()}\n")
        raise typer.Exit


def version() -> str:
    """Return the version of the installed distribution, or `unknown` in a bare checkout."""
    try:
        return importlib.metadata.version("octavo")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


VersionOption = Annotated[
    bool,
    typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
]


@app.callback()
def _before(
    ctx: typer.Context,
    root: RootOption = None,
    config: ConfigOption = None,
    debug: DebugOption = False,
    version: VersionOption = False,  # noqa: ARG001 - acted upon by its callback
) -> None:
    ctx.obj = Globals(root, config, debug)


_before.__doc__ = _HELP

for _topic in (asking, content, bases, building, verifying, inspecting, serving):
    _topic.register(app)


def _keep_standard_output_clean() -> None:
    """Give standard output to `sys.stdout` alone: what libraries and the JVM print goes to stderr.

    File descriptor 1 becomes a copy of 2, so that one JSON document (or MCP's protocol) is all
    that a pipe receives.
    """
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(private, "w", encoding="utf-8", newline="\n")


def main() -> None:
    """Run the command line."""
    if "--json" in sys.argv or "mcp" in sys.argv:
        _keep_standard_output_clean()
    app()


if __name__ == "__main__":
    main()
