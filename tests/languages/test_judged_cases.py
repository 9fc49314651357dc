"""What the queries of each language must find, must rank first and must not find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from engine.index.languages import FIELDS
from tests.languages.judging import Case, JudgedIndex, all_judged

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("jvm")]

JUDGED = all_judged()
CASES = [
    pytest.param(judged.name, case, id=f"{judged.name}-{case.query[:40]}")
    for judged in JUDGED
    for case in judged.cases
]


@pytest.fixture(scope="module")
def indexes(
    jvm: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, JudgedIndex]]:
    root = tmp_path_factory.mktemp("judged")
    made = {}
    for judged in JUDGED:
        (root / judged.name).mkdir()
        made[judged.name] = JudgedIndex(judged, root / judged.name)
    yield made
    for index in made.values():
        index.close()


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_query_finds_what_was_judged(
    indexes: Mapping[str, JudgedIndex], name: str, case: Case
) -> None:
    found = indexes[name].search(case.query)
    names = [text for text, _ in found]
    if case.nothing:
        assert names == [], case.about
    assert case.find <= set(names), case.about
    assert not case.never & set(names), case.about
    head = len(case.first)
    assert set(names[:head]) == case.first, case.about
    if head and len(found) > head:
        assert found[head - 1][1] > found[head][1], f"{case.about}: a tie decides"


def test_every_language_with_a_field_has_at_least_a_dozen_cases() -> None:
    counts = {judged.name: len(judged.cases) for judged in JUDGED}
    for field in FIELDS:
        assert field.language is None or counts[field.language] >= 12, field.language
