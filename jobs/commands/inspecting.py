"""`octavo status` and `octavo config`: what is there, and what was configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from jobs.commands.call import BUILDING, Call, command
from jobs.commands.rendering import show_fields, show_table

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    command(app, "status", panel=BUILDING, examples="octavo status --json")(status)
    group = typer.Typer(no_args_is_help=True, help="Look at the configuration.")
    app.add_typer(group, name="config", rich_help_panel=BUILDING)
    command(group, "show", examples="octavo config show --config configs/local.yaml")(show)


def status(call: Call) -> None:
    """Show what the store holds, what is pending, and the newest generation."""
    from jobs.status import status as read

    document = read(call.config)

    def show_status(console: Console) -> None:
        bases = document["bases"]
        items = document["items"]
        generation = document["generation"] or {}
        fields = {
            "root": document["root"],
            "runtime": document["runtime"],
            "items": ", ".join(f"{count} {name}" for name, count in items.items()),
            "revisions": document["revisions"],
            "pending publications": document["pending"],
            "encoder": document["encoder"],
        }
        fields |= {
            name: generation.get(name)
            for name in ("generation", "shards", "segments", "passages", "created_at")
        }
        if document["vectors"]:
            fields["vector search"] = _vector_search(document["vectors"])
        show_fields(console, fields)
        if bases:
            console.print()
            headings = ("base", "title", "scope", "status", "items")
            show_table(console, headings, [[base[name] for name in headings] for base in bases])

    call.answer(document, show_status)


def _vector_search(vectors: dict[str, Any]) -> str:
    told = [f"exact in {vectors['exact']} segments"] if vectors["exact"] else []
    if vectors["approximate"]:
        recall = ", ".join(f"{value} at {at}" for at, value in vectors["least_recall"].items())
        told.append(f"approximate in {vectors['approximate']} segments (recall {recall})")
    if vectors["unreadable"]:
        told.append(f"{vectors['unreadable']} segments are damaged")
    return ", ".join(told) or "no segments"


def show(call: Call) -> None:
    """Show the configuration in force: the file's keys, and defaults for the rest."""
    import yaml

    document = call.config.model_dump(mode="json")
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    call.answer(document, lambda console: console.print(text, markup=False, highlight=False))
