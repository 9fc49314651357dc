"""`octavo serve`, `mcp`, `runtime`, `token` and `demo`: answering others."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.authorization import ANONYMOUS, OPERATOR, READ_SCOPE, Principal
from engine.config import Config
from engine.errors import ConfigurationError
from jobs.commands.asking import AsOption, principal_named
from jobs.commands.call import RUNNING, Call, command
from jobs.commands.rendering import show_fields


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    command(
        app,
        "serve",
        panel=RUNNING,
        examples="""octavo serve --port 8000
octavo serve --host 0.0.0.0 --tokens tokens.yaml""",
    )(serve)
    command(
        app,
        "mcp",
        panel=RUNNING,
        examples="""octavo mcp
octavo mcp --url http://127.0.0.1:8000/mcp""",
    )(mcp)
    group = typer.Typer(no_args_is_help=True, help="Switch the knowledge runtime on and off.")
    app.add_typer(group, name="runtime", rich_help_panel=RUNNING)
    command(group, "on", examples="octavo runtime on")(switch_on)
    command(group, "off", examples="octavo runtime off")(switch_off)
    group = typer.Typer(no_args_is_help=True, help="Make credentials for a server.")
    app.add_typer(group, name="token", rich_help_panel=RUNNING)
    command(group, "create", examples="octavo token create alice --team docs --file tokens.yaml")(
        create_token
    )
    command(app, "demo", panel=RUNNING, examples="octavo demo --keep")(demo)


def serve(
    call: Call,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen.")] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=1, max=65535, help="Where to listen.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Hashed tokens. Without credentials: loopback and public bases only.",
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=64, help="Shard groups, each a deployment."),
    ] = None,
) -> None:
    """Serve MCP at /mcp and the same over HTTP at /v1, on Ray Serve, until interrupted.

    Ready when /readyz answers 200. A new generation is taken up without a restart.
    """
    from serve.launcher import serve_until_stopped

    given = {"host": host, "port": port, "groups": groups}
    if groups is not None and groups > 1:
        given["group_deployments"] = True
    changes = {name: value for name, value in given.items() if value is not None}
    settings = call.config.serve.model_copy(update=changes)
    config = call.config.model_copy(update={"serve": settings})
    call.note("starting; stop with Ctrl-C")
    serve_until_stopped(
        config,
        tokens,
        announce=lambda server: call.note(f"serving {server.url} (MCP at {server.mcp_url})"),
    )


def mcp(
    call: Call,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Bridge to this running server instead.")
    ] = None,
    as_: AsOption = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="Read every base. Default: public bases only.")
    ] = False,
) -> None:
    """Speak MCP over standard input and output, for desktop clients.

    Works on the local store without Ray, or as a bridge with --url (its token is taken from the
    environment variable OCTAVO_TOKEN).
    """
    if operator and as_ is not None:
        raise typer.BadParameter("--as and --operator exclude each other")
    if url is not None and (operator or as_ is not None):
        raise typer.BadParameter("a bridge reads as its token says: no --as, no --operator")
    if url is not None:
        from serve.mcp_door import serve_bridge

        asyncio.run(serve_bridge(url, bearer_token()))
        return
    principal = OPERATOR if operator else ANONYMOUS if as_ is None else principal_named(as_)
    asyncio.run(_serve_stdio(call.config, principal))


async def _serve_stdio(config: Config, principal: Principal) -> None:
    from engine.local import open_local
    from serve.mcp_door import serve_stdio

    knowledge = open_local(config)
    warming = asyncio.create_task(knowledge.ready())  # opens the encoder before it is asked for
    try:
        await serve_stdio(knowledge, principal)
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
        await knowledge.close()


def bearer_token() -> str | None:
    """Return the token for a server, from the environment variable `OCTAVO_TOKEN`."""
    return os.environ.get("OCTAVO_TOKEN") or None


def switch_on(call: Call) -> None:
    """Let the runtime answer."""
    _switch(call, enabled=True)


def switch_off(call: Call) -> None:
    """Make every door answer knowledge_runtime_disabled, within a second, on every replica."""
    _switch(call, enabled=False)


def _switch(call: Call, *, enabled: bool) -> None:
    call.store().runtime.set(enabled)
    document = {"runtime": "on" if enabled else "off"}
    call.answer(document, lambda console: show_fields(console, document))


def create_token(
    call: Call,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Whom it stands for.")],
    team: Annotated[
        list[str] | None, typer.Option(metavar="TEAM", help="A team; may be repeated.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help=f"May be repeated. Default: {READ_SCOPE}."),
    ] = None,
    organization: Annotated[str, typer.Option(metavar="NAME", help="Its organization.")] = "",
    file: Annotated[Path, typer.Option(metavar="FILE", help="Where its hash is kept.")] = Path(
        "tokens.yaml"
    ),
) -> None:
    """Make a token, print it once, and add its hash to a token file."""
    from serve.auth.tokens import make_token

    token, entry = make_token(
        subject,
        teams=team or (),
        scopes=scope or (READ_SCOPE,),
        organization=organization,
    )
    _add_entry(file, entry)
    document = {"token": token, "subject": subject, "file": str(file)}
    call.note("shown this once: only its hash is kept")
    call.answer(document, lambda console: show_fields(console, document))


def _add_entry(path: Path, entry: dict[str, object]) -> None:
    import yaml

    from engine.store.storage import LocalStorage
    from serve.auth.tokens import parse_tokens

    try:
        text = path.read_text("utf-8") if path.exists() else "tokens: []"
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    known = [token.model_dump(mode="json") for token in parse_tokens(text, str(path))]
    data = yaml.safe_dump({"tokens": [*known, entry]}, sort_keys=False, allow_unicode=True)
    LocalStorage(path.absolute().parent).put_bytes_atomic(path.name, data.encode("utf-8"))


def demo(
    call: Call,
    everything: Annotated[
        bool, typer.Option("--all", help="Read every installed package, however long it takes.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it serving, and print how to connect.")
    ] = False,
) -> None:
    """Play the whole product once: ingest, publish, reindex, serve, and a visit through MCP."""
    from jobs.demo import run_demo

    code = run_demo(call.config, everything=everything, keep=keep, console=call.err)
    if code:
        sys.exit(code)
