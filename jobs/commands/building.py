"""`octavo reindex` and `octavo generation`: building generations and looking at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import NotFoundError
from jobs.commands.call import BUILDING, Call, command
from jobs.commands.rendering import show_fields, show_table

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    command(
        app,
        "reindex",
        panel=BUILDING,
        examples="""octavo reindex --shards 3
octavo reindex --json""",
    )(reindex)
    group = typer.Typer(no_args_is_help=True, help="Look at generations of the index.")
    app.add_typer(group, name="generation", rich_help_panel=BUILDING)
    command(group, "list", examples="octavo generation list")(list_generations)
    command(group, "show", examples="octavo generation show 3 --json")(show)


def reindex(
    call: Call,
    shards: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=4096, help="Spread over N shards; vectors are copied."
        ),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Cut again, and encode what no stored vector fits."),
    ] = False,
) -> None:
    """Make what is published searchable: build and commit the next generation.

    Only what the newest generation lacks is encoded. Run again after a crash, it goes on where it
    stopped. With nothing to do it builds nothing. Another number of shards copies every vector.
    A damaged generation is replaced with --rebuild.
    """
    from jobs.reindex import reindex as run

    report = run(call.config, call.err, shards=shards, rebuild=rebuild)
    document = report.document()

    def show_report(console: Console) -> None:
        if report.built:
            show_fields(console, document)
        else:
            console.print(f"nothing to do: {report.reason}")

    call.answer(document, show_report)


def list_generations(call: Call) -> None:
    """List the generations that are kept, oldest first."""
    from engine.index.generation import GenerationLog
    from jobs.status import describe_generation

    log = GenerationLog(call.store().storage)
    rows = [describe_generation(log.get(number)) for number in log.numbers()]
    headings = ("generation", "shards", "segments", "revisions", "passages", "created_at")
    cells = [[row[name] for name in headings] for row in rows]
    call.answer({"generations": rows}, lambda console: show_table(console, headings, cells))


def show(
    call: Call,
    number: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", help="Default: the newest.")
    ] = None,
) -> None:
    """Show one generation and its segments."""
    from engine.index.generation import GenerationLog
    from jobs.status import describe_generation, describe_segment

    log = GenerationLog(call.store().storage)
    record = log.newest() if number is None else log.get(number)
    if record is None:
        raise NotFoundError("there is no generation yet: run `octavo reindex`")
    row = describe_generation(record)
    segments = [describe_segment(segment) for segment in record.segments]
    headings = ("segment", "shard", "revisions", "passages")
    document: dict[str, Any] = {**row, "segment_list": segments}

    def show_all(console: Console) -> None:
        show_fields(console, row)
        console.print()
        show_table(
            console, headings, [[segment[name] for name in headings] for segment in segments]
        )

    call.answer(document, show_all)
