"""The store that the contract suite asks, and the callers that ask it."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from engine.authorization import ANONYMOUS, OPERATOR, Principal
from engine.ids import BaseId, ItemId, RevisionId
from tests.engine.search.building import Library

READ = frozenset({"knowledge:read"})

CALLERS: dict[str, Principal] = {
    "operator": OPERATOR,
    "anonymous": ANONYMOUS,
    "alice": Principal("alice", teams=frozenset({"blue"}), scopes=READ),
    "bob": Principal("bob", scopes=READ, organization="acme"),
    "scopeless": Principal("alice", teams=frozenset({"blue"}), scopes=frozenset({"other:read"})),
}
"""By name. `acme` is the organization of the deployment."""

ORGANIZATION = "acme"

LONG = "".join(
    f"Absatz {at}: Straße, 服务器, naïve e\u0301, 👩‍👩‍👧 und Tab\t.\r\n" for at in range(160)
)
assert len(LONG) > 4000
assert unicodedata.normalize("NFC", LONG) != LONG

PUBLIC_ITEMS = ("deploy", "anmeldung", "fehler-zh", "long", "versions", "ids/with space@100%#ü")


def build(root: Path) -> Library:
    """Make the store, with one generation of two shards."""
    library = Library(root)
    library.add_base("kb", owner="carol")
    library.add_base("notes", scope="private", owner="alice")
    library.add_base("blue", scope="team", owner="carol", team="blue")
    library.add_base("org", scope="organization", owner="carol")
    library.add_base("attic", owner="carol")
    library.add(
        "kb",
        [
            ("deploy", "Deploying", "How to deploy the server: set the token, then start it."),
            ("ids/with space@100%#ü", "Odd id", "An odd id is still an id of the server."),
            ("withdrawn", "Withdrawn", "This server text should never have been public."),
            ("unpublished", "Unpublished", "This server text was taken back."),
            ("archived", "Archived", "This server text was archived."),
        ],
        revision="r1",
    )
    library.add("kb", [("long", "Lang", LONG)], language="de", revision="r1")
    library.add("kb", [("anmeldung", "Anmeldung", "Die Anmeldung am Server.")], language="de")
    library.add("kb", [("fehler-zh", "错误", "服务器 登录 错误 🙂 的 处理")], language="zh")
    library.add("kb", [("versions", "Versions", "The first version of the server.")], revision="v1")
    library.add("notes", [("secret", "Secret", "A private server note of alice.")], revision="r1")
    library.add("blue", [("team-note", "Team", "A server note of team blue.")], revision="r1")
    library.add("org", [("org-note", "Org", "A server note of the organization.")], revision="r1")
    library.add("attic", [("old", "Old", "An old server text.")], revision="r1")
    library.reindex(2)
    library.add("kb", [("versions", "Versions", "The second version of it.")], revision="v2")
    library.add("kb", [("withdrawn", "Clean", "The clean server text.")], revision="r2")
    library.reindex(2)
    library.add("kb", [("versions", "Draft", "A draft version.")], revision="v3", publish=False)
    library.add("kb", [("draft", "Draft", "Only a draft server.")], revision="r1", publish=False)
    writer = library.store.writer
    writer.withdraw(ItemId("withdrawn"), RevisionId("r1"))
    writer.unpublish([ItemId("unpublished")])
    writer.archive_item(ItemId("archived"))
    writer.archive_base(BaseId("attic"))
    return library
