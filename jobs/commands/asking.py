"""`octavo search` and `octavo read`: the contract's tool on a local store, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from engine.authorization import OPERATE_SCOPE, OPERATOR, READ_SCOPE, Principal
from jobs.commands.call import READING, Call, command
from jobs.commands.explaining import show_explanation
from jobs.commands.rendering import show_search, show_window

AsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="SUBJECT[:TEAM,...]",
        help="Read as somebody. Default: as the operator, who may read every base.",
    ),
]
BaseOption = Annotated[str, typer.Option("--base", metavar="BASE", help="Only this base.")]


def principal_named(text: str | None) -> Principal:
    """Return the principal that `--as` names: the operator when it is not given.

    Args:
        text: `SUBJECT`, or `SUBJECT:TEAM,TEAM`; the subject ends at the first colon.
    """
    if text is None:
        return OPERATOR
    subject, _, teams = text.partition(":")
    names = frozenset(name.strip() for name in teams.split(",") if name.strip())
    return Principal(subject.strip(), names, frozenset({READ_SCOPE}))


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    command(
        app,
        "search",
        panel=READING,
        examples="""octavo search "how do I deploy?" --mode hybrid --max-results 5
octavo search "Wie viele Punkte?" --base kb --as alice:docs --json
octavo search ERR_CONN_RESET --explain""",
    )(search)
    command(
        app,
        "read",
        panel=READING,
        examples="""octavo read ITEM --offset 1180 --limit-chars 2000
octavo read ITEM --revision REVISION --json""",
    )(read)


def search(  # noqa: PLR0913 - every option is a parameter
    call: Call,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="What to look for, in any language.")
    ],
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="hybrid, lexical, semantic or rrf.")
    ] = "hybrid",
    alpha: Annotated[
        str, typer.Option(metavar="NUMBER", help="Weight of words in hybrid, 0 to 1; default 0.5.")
    ] = "",
    max_results: Annotated[
        str, typer.Option(metavar="INTEGER", help="How many results, 1 to 50; default 10.")
    ] = "",
    base: BaseOption = "",
    as_: AsOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the arithmetic of every result.")
    ] = False,
) -> None:
    """Search the published knowledge, best passage first.

    Words and meaning are ranked together (hybrid); lexical asks for words only, semantic for
    meaning only, rrf fuses the two ranks.
    """
    arguments = {
        "query": query,
        "mode": mode,
        "alpha": alpha,
        "max_results": max_results,
        "knowledge_base_id": base,
    }
    answer = ask(call, arguments, principal_named(as_), explain=explain)
    if explain:
        call.answer(answer, lambda console: show_explanation(console, answer))
    else:
        call.answer(answer, lambda console: show_search(console, answer, query))


def read(  # noqa: PLR0913 - every option is a parameter
    call: Call,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")],
    revision: Annotated[
        str, typer.Option(metavar="REVISION", help="Exactly this revision; default: the current.")
    ] = "",
    offset: Annotated[
        str, typer.Option(metavar="INTEGER", help="First character of the window; default 0.")
    ] = "",
    limit_chars: Annotated[
        str, typer.Option(metavar="INTEGER", help="Length of the window, 1 to 10000; default 4000.")
    ] = "",
    base: BaseOption = "",
    as_: AsOption = None,
) -> None:
    """Read one item's text exactly, in a window of characters."""
    arguments = {
        "knowledge_item_id": item,
        "knowledge_revision_id": revision,
        "offset": offset,
        "limit_chars": limit_chars,
        "knowledge_base_id": base,
    }
    answer = ask(call, arguments, principal_named(as_))
    call.answer(answer, lambda console: show_window(console, answer))


def ask(
    call: Call, arguments: Mapping[str, Any], principal: Principal, *, explain: bool = False
) -> dict[str, Any]:
    """Answer one call of the tool on the local store, or explain one search.

    Whoever sits at the store is its operator, also when the search is made as somebody else.

    Raises:
        EngineError: with the contract's code, or an operator's error when the store cannot open.
    """
    from engine.local import open_local

    async def answer() -> dict[str, Any]:
        searches = bool(str(arguments.get("query", "")).strip())
        knowledge = open_local(call.config, searches=searches)
        operating = replace(principal, scopes=principal.scopes | {OPERATE_SCOPE})
        try:
            if explain:
                return await knowledge.explain(arguments, operating)
            return await knowledge.answer(arguments, principal)
        finally:
            await knowledge.close()

    return asyncio.run(answer())
