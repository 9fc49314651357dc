"""What every command shares: the options it takes, how it answers, how it fails.

Standard output carries the answer and nothing else; progress, notes and errors go to standard
error. Exit codes: 0 done, 1 a named error, 2 usage.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
import tempfile
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate

import typer
from rich.console import Console
from rich.markup import escape

from engine.config import Config, load_config
from engine.errors import EngineError, OperatorError
from jobs.commands.telling import show_warnings

if TYPE_CHECKING:
    from engine.store.opening import Store

logger = logging.getLogger(__name__)

MARKER = "octavo.json"
"""The file that makes a folder a store; faults are logged beside it."""

INTERRUPTED = 130
"""Exit code after SIGINT, as shells count it."""

READING = "Ask"
CONTENT = "Put knowledge in"
BUILDING = "Build and inspect"
RUNNING = "Serve"

RootOption = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="The store. Default: `root` of the configuration."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A YAML configuration.")
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the trace of an unexpected error.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]


@dataclass(frozen=True, slots=True)
class Globals:
    """The options given before the command."""

    root: Path | None = None
    config: Path | None = None
    debug: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a command: its configuration, and where it speaks.

    Attributes:
        config: the configuration, `root` already laid over.
        as_json: whether the answer is one JSON document.
        debug: whether traces are shown.
        out: standard output, for the answer.
        err: standard error, for everything else.
    """

    config: Config
    as_json: bool
    debug: bool
    out: Console
    err: Console

    def answer(self, document: Mapping[str, Any], show: Callable[[Console], None]) -> None:
        """Print the answer: as JSON with `--json`, else by `show` on standard output."""
        if self.as_json:
            print_json(document)
        else:
            show(self.out)

    def note(self, text: str) -> None:
        """Tell the person at the terminal something; the text is not markup."""
        self.err.print(escape(text), highlight=False, soft_wrap=True)

    def store(self) -> Store:
        """Open the store.

        Raises:
            StoreError: there is none at the root, or something else.
        """
        from engine.store.opening import open_store

        return open_store(self.config.root)


def print_json(document: Mapping[str, Any]) -> None:
    """Write one JSON document and a line end to standard output, non-ASCII as it is."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


type Command[**P] = Callable[Concatenate[Call, P], None]


def command[**P](
    app: typer.Typer, name: str | None, *, panel: str | None = None, examples: str = ""
) -> Callable[[Command[P]], Command[P]]:
    """Register a command, adding `--root`, `--config`, `--json` and `--debug` to its own options.

    The function's docstring is its help. It receives a `Call` first. An `EngineError` it raises
    becomes one line on standard error (with `--json` also the error body on standard output) and
    exit code 1; an unexpected error becomes one line with a fault id.

    Args:
        app: where to register it.
        name: what to type; None: what a group does when none of its commands is named.
        panel: the heading it is listed under.
        examples: lines to type, shown below the options.
    """

    def register(function: Command[P]) -> Command[P]:
        action: Callable[..., None] = function

        def run(ctx: typer.Context, **options: Any) -> None:
            before = ctx.obj if isinstance(ctx.obj, Globals) else Globals()
            given = Globals(
                root=options.pop("root") or before.root,
                config=options.pop("config") or before.config,
                debug=options.pop("debug") or before.debug,
                as_json=options.pop("as_json") or before.as_json,
            )
            if ctx.invoked_subcommand is not None:
                ctx.obj = given  # options of a group count for its commands
                return
            _run(given, given.as_json, lambda call: action(call, **options))

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [
            inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
            _option("as_json", JsonOption, default=False),
            _option("root", RootOption, default=None),
            _option("config", ConfigOption, default=None),
            _option("debug", DebugOption, default=False),
        ]
        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
        epilog = "\n\n".join(f"`{line}`" for line in examples.strip().splitlines())
        if name is None:
            app.callback(invoke_without_command=True, epilog=epilog or None)(run)
        else:
            app.command(name, rich_help_panel=panel, epilog=epilog or None)(run)
        return function

    return register


def _option(name: str, annotation: Any, *, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _run(given: Globals, as_json: bool, body: Callable[[Call], None]) -> None:
    err = Console(stderr=True)
    root = None if given.root is None else str(given.root)
    try:
        config = load_config(given.config, root=root)
    except EngineError as error:
        raise _failure(error, as_json) from None
    show_warnings()
    call = Call(config, as_json, given.debug, Console(), err)
    try:
        body(call)
    except KeyboardInterrupt:
        call.note("octavo: interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - the outermost boundary: it gets a fault id
        raise _failure(_named(error, call), as_json) from None


def _named(error: Exception, call: Call) -> EngineError:
    """Return the deliberate error behind an exception, or a fault whose trace was logged."""
    from jobs.faults import engine_error_in

    named = engine_error_in(error)
    return named if named is not None else _fault(error, call)


def _fault(error: Exception, call: Call) -> EngineError:
    fault = uuid.uuid4().hex[:12]
    trace = "".join(traceback.format_exception(error))
    if call.debug:
        sys.stderr.write(trace)
        return OperatorError(f"unexpected {type(error).__name__}, fault {fault}")
    root = Path(call.config.root)
    log = (root if (root / MARKER).exists() else Path(tempfile.gettempdir())) / "octavo-faults.log"
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{stamp} fault {fault}\n{trace}\n")
    except OSError:
        return OperatorError(f"unexpected {type(error).__name__}; run again with --debug")
    return OperatorError(f"unexpected {type(error).__name__}, fault {fault}: see {log}")


def _failure(error: EngineError, as_json: bool) -> typer.Exit:
    """Say an error on standard error, with `--json` on standard output too; return the exit."""
    line = " ".join(str(error).split())
    sys.stderr.write(f"octavo: error: {line} ({error.code})\n")
    if as_json:
        print_json(error_document(error))
    return typer.Exit(1)


def error_document(error: EngineError) -> dict[str, Any]:
    """Return the body that tells an error: the contract's, or one of the same shape."""
    from engine.contract import HTTP_STATUS, render_error

    if error.code in HTTP_STATUS:
        return render_error(error)
    body = {"code": error.code, "message": str(error)}
    return {"type": "octavo_error", "error": body}
