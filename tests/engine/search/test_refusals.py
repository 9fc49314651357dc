"""Whatever the reason of a refusal: one code, one message, no text read, the same look-ups."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from benchmarks.indistinguishable import READS, SEARCHES
from engine.authorization import READ_SCOPE, Principal
from engine.errors import ResourceUnavailableError
from engine.ids import BaseId, ItemId, RevisionId
from engine.local import open_local
from engine.search.answering import REFUSAL_S
from engine.search.views import CatalogViews
from engine.store.catalog import Catalog
from engine.store.revisions import Revisions
from tests.engine.search.building import Library, small_config

pytestmark = pytest.mark.jvm

ALICE = Principal("alice", scopes=frozenset({READ_SCOPE}))
CASES = [*READS.items(), *SEARCHES.items()]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Return a store in which each of the cases has its reason."""
    library = Library(tmp_path_factory.mktemp("refusals") / "store")
    for base, owner in {
        "visible": "alice",
        "other": "alice",
        "foreign": "bob",
        "archive": "alice",
    }.items():
        library.add_base(base, scope="private", owner=owner)
    for base, items in {
        "visible": ("visible", "unpubld", "withdrw"),
        "foreign": ("foreign",),
        "archive": ("archive",),
    }.items():
        library.add(base, [(item, "Server", "a server") for item in items], revision="r1")
    library.add("visible", [("drafted", "Server", "a server")], revision="r1", publish=False)
    library.reindex()
    writer = library.store.writer
    writer.unpublish([ItemId("unpubld")])
    writer.withdraw(ItemId("withdrw"), RevisionId("r1"))
    writer.archive_base(BaseId("archive"))
    return library


def _counting(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is asked of the store and of the catalog."""
    asked: Counter[str] = Counter()
    for owner, names in ((Revisions, ("read",)), (CatalogViews, ("fresh", "poll"))):
        for name in names:
            original = getattr(owner, name)

            def counted(*given: Any, _original: Any = original, _name: str = name) -> Any:
                asked[_name] += 1
                return _original(*given)

            patch.setattr(owner, name, counted)
    original_item = Catalog.item

    def item(self: Catalog, wanted: ItemId) -> Any:
        asked["item"] += 1
        return original_item(self, wanted)

    patch.setattr(Catalog, "item", item)
    return asked


async def test_every_refusal_is_the_same_and_reads_nothing(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(library.root, catalog={"poll_s": 60.0, "max_staleness_s": 600.0})
    knowledge = open_local(config)
    told = set()
    try:
        with monkeypatch.context() as patch:
            asked = _counting(patch)
            for _, arguments in CASES:
                asked.clear()
                begun = time.perf_counter()
                with pytest.raises(ResourceUnavailableError) as caught:
                    await knowledge.answer(arguments, ALICE)
                assert time.perf_counter() - begun >= REFUSAL_S
                assert asked["read"] == 0
                assert asked["fresh"] == 1
                told.add((caught.value.code, str(caught.value), repr(caught.value.args)))
        assert len(told) == 1
        answer = await knowledge.answer({"knowledge_item_id": "visible"}, ALICE)
        assert answer["content"] == "a server"
    finally:
        await knowledge.close()
