"""`octavo ingest`, `publish`, `unpublish`, `archive`, `withdraw`, `erase`: what is in or public."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.ids import BaseId, ItemId, RevisionId
from jobs.commands.bases import ExpectedOption
from jobs.commands.call import CONTENT, Call, command
from jobs.commands.rendering import show_fields

if TYPE_CHECKING:
    from jobs.publish import Selection

ItemsArgument = Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="Item ids.")]
OfBaseOption = Annotated[
    str | None, typer.Option("--base", metavar="BASE", help="Every item of this base.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    command(
        app,
        "ingest",
        panel=CONTENT,
        examples="""octavo ingest docs/ --base handbook --publish
octavo ingest corpus.jsonl.gz --base kb --language de --rejects rejects.jsonl""",
    )(ingest)
    command(
        app,
        "publish",
        panel=CONTENT,
        examples="""octavo publish ITEM --revision REVISION --wait
octavo publish --base kb""",
    )(publish)
    command(app, "unpublish", panel=CONTENT, examples="octavo unpublish ITEM")(unpublish)
    command(
        app,
        "archive",
        panel=CONTENT,
        examples="""octavo archive ITEM
octavo archive --base kb""",
    )(archive)
    command(app, "withdraw", panel=CONTENT, examples="octavo withdraw ITEM REVISION")(withdraw)
    command(
        app,
        "erase",
        panel=CONTENT,
        examples="""octavo erase ITEM REVISION --dry-run
octavo erase ITEM --all""",
    )(erase)


def ingest(
    call: Call,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A directory, or a file of text, JSONL or Parquet.", exists=True
        ),
    ],
    base: Annotated[str, typer.Option("--base", metavar="BASE", help="Where the items go.")],
    publish: Annotated[bool, typer.Option("--publish", help="Publish what is read.")] = False,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Of texts that name none; default: detected.")
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where refused ones are named; default: ROOT/rejects/."),
    ] = None,
) -> None:
    """Read texts into a base: one item each, one revision for each different text.

    Markdown, plain text, reStructuredText and HTML files; JSONL and Parquet with columns id, title,
    text, language; BEIR corpora (_id, title, text). Reading the same again adds nothing; a changed
    source becomes a new revision of the same item. What cannot be read is reported and skipped.
    """
    from jobs.ingest import IngestOrder
    from jobs.ingest import ingest as run

    order = IngestOrder(path, BaseId(base), publish, language, rejects)
    report = run(call.config, order, call.err)
    if report.refused:
        call.note(f"{report.refused} refused: see {report.rejects_file}")
    call.answer(report.document(), lambda console: show_fields(console, report.document()))


def publish(  # noqa: PLR0913 - every option is a parameter
    call: Call,
    items: ItemsArgument = None,
    base: OfBaseOption = None,
    every: Annotated[bool, typer.Option("--all", help="Every item of every active base.")] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="REVISION", help="This revision; default: the newest.")
    ] = None,
    expected_version: ExpectedOption = None,
    wait_s: Annotated[
        float | None,
        typer.Option("--wait-s", metavar="SECONDS", help="How long --wait waits at most.", min=0.0),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until a reindex, run elsewhere, makes it current."),
    ] = False,
) -> None:
    """Publish items. A revision becomes current with the generation that first holds it.

    That generation is built by `octavo reindex`; until then the earlier revision stays current.
    """
    from jobs.publish import Waiting
    from jobs.publish import publish as run

    _require_one(items, revision is not None or expected_version is not None)
    selection = _selection(items, base, every=every)
    chosen = None if revision is None else RevisionId(revision)
    count = run(call.store(), selection, chosen, expected_version)
    document: dict[str, Any] = {"published": count, "current": False}
    if wait or wait_s is not None:
        call.note("waiting for a generation that holds it: run `octavo reindex` elsewhere")
        Waiting(call.store(), selection).wait(wait_s)
        document["current"] = True
    else:
        call.note("`octavo reindex` makes it current")
    call.answer(document, lambda console: show_fields(console, document))


def unpublish(
    call: Call,
    items: ItemsArgument = None,
    base: OfBaseOption = None,
    expected_version: ExpectedOption = None,
) -> None:
    """Take items back to draft. They vanish within a second, with no reindexing."""
    from jobs.publish import unpublish as run

    _require_one(items, expected_version is not None)
    count = run(call.store(), _selection(items, base), expected_version)
    document = {"unpublished": count}
    call.answer(document, lambda console: show_fields(console, document))


def archive(
    call: Call,
    items: ItemsArgument = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="BASE", help="The base itself.")
    ] = None,
    expected_version: ExpectedOption = None,
) -> None:
    """Archive items, or a whole base. They vanish within a second, with no reindexing."""
    from jobs.publish import archive_base, archive_items

    if (base is None) == (not items):
        raise typer.BadParameter("give items, or --base, and not both")
    if base is not None:
        archive_base(call.store(), BaseId(base), expected_version)
        document: dict[str, Any] = {"archived_base": base}
    else:
        _require_one(items, expected_version is not None)
        count = archive_items(call.store(), _selection(items, None), expected_version)
        document = {"archived": count}
    call.answer(document, lambda console: show_fields(console, document))


def withdraw(
    call: Call,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")],
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="The revision's id.")],
) -> None:
    """Withdraw one revision: it cannot be read any more, not even by its address.

    For a text that should never have been public. It acts within a second.
    """
    from jobs.publish import withdraw as run

    run(call.store(), ItemId(item), RevisionId(revision))
    document = {"item": item, "withdrawn": revision}
    call.answer(document, lambda console: show_fields(console, document))


def erase(
    call: Call,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")],
    revisions: Annotated[
        list[str] | None, typer.Argument(metavar="[REVISION]...", help="Which of its revisions.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every revision of the item.")] = False,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who asks for it; default: this user.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
) -> None:
    """Erase revisions for ever: text, title, vectors, postings, from every file of the root.

    Running servers stop showing them within a second. A tombstone stays: ids, who, when. Then every
    file is searched for the text. Killed or refused, run it again: it goes on. The same text in
    other revisions stays, and is named. Not reached: backups, snapshots of the file system, and
    blocks that a disk has not written over.
    """
    from jobs.erase import Selection as Chosen
    from jobs.erase import erase as run

    if bool(revisions) == every:
        raise typer.BadParameter("give revisions, or --all, and not both")
    chosen = Chosen(ItemId(item), tuple(RevisionId(revision) for revision in revisions or ()))
    report = run(call.config, chosen, by or getpass.getuser(), dry_run=dry_run)
    if report.same_text:
        call.note(f"{len(report.same_text)} other revisions hold the same text and stay")
    if not report.pieces and not dry_run:
        call.note("nothing of the text is left to search by: files were checked by ids alone")
    if report.mapped_by:
        call.note("some processes still read removed segments: they let go after their queries")
    call.answer(report.document(), lambda console: show_fields(console, report.document()))


def _require_one(items: list[str] | None, particular: bool) -> None:
    if particular and len(items or ()) != 1:
        raise typer.BadParameter("--revision and --expected-version need exactly one item")


def _selection(items: list[str] | None, base: str | None, *, every: bool = False) -> Selection:
    from jobs.publish import Selection

    if sum((bool(items), base is not None, every)) != 1:
        raise typer.BadParameter("say what: item ids, or --base, or --all (publish only)")
    ids = tuple(ItemId(item) for item in items or ())
    return Selection(ids, None if base is None else BaseId(base))
