"""`octavo verify`: whether a generation is whole, and whether its ranking is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.authorization import ANONYMOUS
from engine.contract import MAX_RESULTS, MODES
from engine.errors import ConfigurationError
from jobs.commands.asking import BaseOption, principal_named
from jobs.commands.call import BUILDING, Call, command
from jobs.commands.rendering import plain, show_fields, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.verify_ranking import RankingReport

_SHOWN_FINDINGS = 20

QueriesOption = Annotated[
    Path,
    typer.Option(
        "--queries",
        metavar="FILE",
        help="One query a line; or .jsonl with text and maybe mode, alpha, max_results, base.",
    ),
]
AsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="SUBJECT[:TEAM,...]",
        help="As somebody. Default: the operator; with --url a caller without a token.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    group = typer.Typer()
    app.add_typer(group, name="verify", rich_help_panel=BUILDING)
    command(
        group,
        None,
        examples="""octavo verify
octavo verify ranking --queries queries.txt""",
    )(verify)
    command(
        group,
        "ranking",
        examples="""octavo verify ranking --queries queries.txt
octavo verify ranking --queries queries.jsonl --mode hybrid --as alice:docs --sample 50
octavo verify ranking --queries queries.txt --url http://127.0.0.1:8000""",
    )(ranking)


def verify(call: Call) -> None:
    """Check every file of the newest generation against its hash, and that its parts agree.

    With `ranking`: compare the served ranking with brute force over every passage.
    """
    from jobs.verify import verify as run

    report = run(call.config, call.err)
    call.answer(report.document(), lambda console: show_fields(console, report.document()))


def ranking(  # noqa: PLR0913 - every option is a parameter
    call: Call,
    queries: QueriesOption,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="Only this mode. Default: all four.")
    ] = None,
    max_results: Annotated[
        int, typer.Option(metavar="INTEGER", min=1, max=MAX_RESULTS, help="Results of a query.")
    ] = 10,
    base: BaseOption = "",
    as_: AsOption = None,
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="At most N queries, evenly spaced over the file."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Ask a running server over this store; default: this process."
        ),
    ] = None,
    token_env: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable with a token for --url.")
    ] = "OCTAVO_TOKEN",
) -> None:
    """Compare the served ranking with brute force over every passage of the newest generation.

    The reference shares no code with the search: it reads every posting, length and vector, scores
    every passage in float64, ranks all items and cuts. Exit code 1 when an answer differs in an
    item, its place, a rank, a score or the passage shown.
    """
    from jobs.verify_queries import read_queries
    from jobs.verify_ranking import RankingOrder, verify_ranking

    modes = MODES if mode is None else (mode.strip().casefold(),)
    if modes[0] not in MODES:
        raise ConfigurationError(f"there is no mode {mode}: it is one of {', '.join(MODES)}")
    defaults = {"max_results": max_results, "knowledge_base_id": base}
    lines = read_queries(queries, modes, defaults, sample)
    caller = ANONYMOUS if url is not None and as_ is None else principal_named(as_)
    token = os.environ.get(token_env) if url is not None else None
    report = verify_ranking(call.config, RankingOrder(lines, caller, url, token), call.err)
    document = report.document()
    call.answer(document, lambda console: _show_ranking(console, report, document))
    if not report.agreed:
        raise typer.Exit(1)


def _show_ranking(console: Console, report: RankingReport, document: dict[str, Any]) -> None:
    headings = ("agree", "within rounding", "disagree", "uncertified", "largest difference")
    names = [heading.replace(" ", "_") for heading in headings]
    rows = [
        [mode, counts["answers"], *(_number(counts[name]) for name in names)]
        for mode, counts in document["modes"].items()
    ]
    show_table(console, ("mode", "answers", *headings), rows)
    console.print()
    for finding in document["disagreements"][:_SHOWN_FINDINGS]:
        console.print(plain(_finding(finding)), soft_wrap=True)
    hidden = len(document["disagreements"]) - _SHOWN_FINDINGS
    if hidden > 0:
        console.print(plain(f"and {hidden} more: --json has them all"), soft_wrap=True)
    console.print(plain(_summary(report, document)), soft_wrap=True)


def _number(value: object) -> object:
    return f"{value:.1e}" if isinstance(value, float) else value


def _finding(finding: dict[str, Any]) -> str:
    served, reference = (_result(finding[name]) for name in ("served", "reference"))
    return (
        f"line {finding['line']}, {finding['mode']}: rank {finding['rank']}: {finding['reason']}; "
        f"served {served}, reference {reference}"
    )


def _result(result: dict[str, Any] | None) -> str:
    return "nothing" if result is None else f"{result['item']} {result['score']!r}"


def _summary(report: RankingReport, document: dict[str, Any]) -> str:
    over = (
        f"of {document['answers']} answers of generation {report.generation} over "
        f"{report.readable} readable passages"
    )
    if not report.agreed:
        return f"{document['disagree']} {over} disagree with brute force"
    if not report.approximate:
        return f"None {over} disagrees with brute force; largest difference {report.largest:.1e}"
    recall = document["recall_at_rank_window"]
    told = (
        "" if recall is None else f": {recall['mean']:.4f} on average, {recall['least']:.4f} least"
    )
    return (
        f"{document['uncertified']} {over} are uncertified: vectors are searched approximately; "
        f"recall at the rank window{told or ' was not asked'}"
    )
