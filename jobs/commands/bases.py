"""`octavo base`: create, list, show and change bases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import NotFoundError
from engine.ids import BaseId
from jobs.commands.call import CONTENT, Call, command
from jobs.commands.rendering import show_fields, show_table

if TYPE_CHECKING:
    from engine.store.catalog import BaseState, Catalog
    from engine.store.opening import Store
    from engine.store.writer import BaseChanges

BaseArgument = Annotated[str, typer.Argument(metavar="BASE", help="The base's id.")]
TeamOption = Annotated[
    str | None, typer.Option(metavar="TEAM", help="The team that may read it under scope team.")
]
ScopeHelp = "Who may read it: private (the owner), team, organization or public."
ExpectedOption = Annotated[
    int | None,
    typer.Option(metavar="VERSION", help="Refuse when the version is another by now."),
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    group = typer.Typer(no_args_is_help=True, help="Create, list, show and change bases.")
    app.add_typer(group, name="base", rich_help_panel=CONTENT)
    command(
        group,
        "create",
        examples='octavo base create kb --title "Knowledge" --owner alice --scope public',
    )(create)
    command(group, "list", examples="octavo base list --json")(list_bases)
    command(group, "show", examples="octavo base show kb")(show)
    command(
        group,
        "set",
        examples="""octavo base set kb --scope team --team docs
octavo base set kb --status archived --expected-version 3""",
    )(change)


def create(
    call: Call,
    base: BaseArgument,
    title: Annotated[str, typer.Option(help="What people call it.")],
    owner: Annotated[str, typer.Option(metavar="SUBJECT", help="Who may always read it.")],
    team: TeamOption = None,
    scope: Annotated[str, typer.Option(metavar="SCOPE", help=ScopeHelp)] = "private",
) -> None:
    """Create a base: a collection with one owner and one rule of who may read it."""
    from engine.store.opening import create_store

    create_store(call.config.root).writer.create_base(BaseId(base), title, owner, team, scope)
    _answer(call, base)


def list_bases(call: Call) -> None:
    """List every base, active and archived."""
    newest = call.store().catalog.poll()
    counts = _item_counts(newest)
    rows = [_described(state, counts) for state in newest.bases()]
    rows.sort(key=lambda row: str(row["base"]))
    headings = ("base", "title", "owner", "team", "scope", "status", "version", "items")
    cells = [[row[name] for name in headings] for row in rows]
    call.answer({"bases": rows}, lambda console: show_table(console, headings, cells))


def show(call: Call, base: BaseArgument) -> None:
    """Show one base."""
    _answer(call, base)


def change(  # noqa: PLR0913 - every option is a parameter
    call: Call,
    base: BaseArgument,
    title: Annotated[str | None, typer.Option(help="A new title.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="SUBJECT", help="A new owner.")] = None,
    team: Annotated[
        str | None, typer.Option(metavar="TEAM", help='A new team; "" for none.')
    ] = None,
    scope: Annotated[str | None, typer.Option(metavar="SCOPE", help=ScopeHelp)] = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="archived: hidden from everybody; or active again."),
    ] = None,
    expected_version: ExpectedOption = None,
) -> None:
    """Change a base. Who may read it changes within a second, with no reindexing."""
    changes: BaseChanges = {}
    if title is not None:
        changes["title"] = title
    if owner is not None:
        changes["owner"] = owner
    if team is not None:
        changes["team"] = team or None
    if scope is not None:
        changes["scope"] = scope
    _change(call.store(), BaseId(base), changes, status, expected_version)
    _answer(call, base)


def _change(
    store: Store,
    base: BaseId,
    changes: BaseChanges,
    status: str | None,
    expected_version: int | None,
) -> None:
    if not changes and status is None:
        raise typer.BadParameter("nothing to change: give --title, --owner, --team, --scope, ...")
    if status not in {None, "active", "archived"}:
        raise typer.BadParameter("--status is active or archived")
    if changes:
        state = store.writer.set_base(base, expected_version, **changes)
        expected_version = None if expected_version is None else state.version
    if status == "active":
        store.writer.activate_base(base, expected_version)
    elif status == "archived":
        store.writer.archive_base(base, expected_version)


def _answer(call: Call, base: str) -> None:
    newest = call.store().catalog.poll()
    state = newest.base(BaseId(base))
    if state is None:
        raise NotFoundError(f"no base {base}")
    row = _described(state, _item_counts(newest))
    call.answer(row, lambda console: show_fields(console, row))


def _item_counts(newest: Catalog) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in newest.items():
        counts[item.base_id] = counts.get(item.base_id, 0) + 1
    return counts


def _described(state: BaseState, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "base": state.base_id,
        "title": state.title,
        "owner": state.owner,
        "team": state.team,
        "scope": state.scope,
        "status": state.status,
        "version": state.version,
        "items": counts.get(state.base_id, 0),
        "changed_at": state.changed_at,
    }
