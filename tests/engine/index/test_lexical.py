"""The lexical side of a segment, on real Lucene."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import JavaError, SegmentRefusedError
from engine.index.analysis import passage_terms
from engine.index.languages import FIELD_CODES
from engine.index.lexical import LexicalIndex, LexicalQuery
from engine.index.lexical_builder import LexicalBuilder
from engine.index.lucene import lucene
from engine.index.statistics import (
    LEXICAL_RELATIVE_ERROR,
    NORM_LENGTHS,
    FieldStatistics,
    bm25_exact,
    merge_statistics,
    term_weights,
    upper_bound,
)
from tests.engine.index.specimens import bm25_of_words, index_words

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("jvm")]

FIELD = "text_other"
WORDS = [f"w{number}" for number in range(12)]


@dataclass(frozen=True)
class Collection:
    """Passages of several skewed segments, and which of them may be read."""

    segments: list[list[list[str]]]
    allowed: list[list[bool]]


@st.composite
def collections(draw: st.DrawFn) -> Collection:
    segments, allowed = [], []
    for _ in range(draw(st.integers(1, 3))):
        vocabulary = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5))
        longest = draw(st.sampled_from([2, 8, 60]))
        passage = st.lists(st.sampled_from(vocabulary), max_size=longest)
        segment = draw(st.lists(passage, min_size=1, max_size=12))
        everything = draw(st.booleans())
        flags = st.just(True) if everything else st.booleans()
        segments.append(segment)
        allowed.append(draw(st.lists(flags, min_size=len(segment), max_size=len(segment))))
    return Collection(segments, allowed)


@settings(max_examples=25, deadline=None)
@given(
    collections(),
    st.lists(st.sampled_from([*WORDS, "nowhere"]), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.2, 0.9, 1.2, 10.0]),
    st.sampled_from([0.0, 0.4, 0.75, 1.0]),
    st.integers(1, 40),
)
def test_segments_score_as_one_collection_of_the_readable_passages_would(
    collection: Collection, query: list[str], k1: float, b: float, depth: int
) -> None:
    folder = Path(tempfile.mkdtemp())
    asked, terms = dict(Counter(query)), list(dict.fromkeys(query))
    opened = [
        index_words(folder / str(place), segment)
        for place, segment in enumerate(collection.segments)
    ]
    masks = [np.array(flags) for flags in collection.allowed]
    filters = [index.filter(mask) for (index, _), mask in zip(opened, masks, strict=True)]
    whole = merge_statistics(
        FieldStatistics(
            int(np.count_nonzero(lengths.tokens[mask])),
            int(lengths.tokens[mask].sum()),
            dict(
                zip(terms, index.document_frequencies(FIELD, terms, chosen).tolist(), strict=True)
            ),
        )
        for (index, lengths), mask, chosen in zip(opened, masks, filters, strict=True)
    )
    readable = [
        (words, int(norm))
        for segment, mask, (_, lengths) in zip(collection.segments, masks, opened, strict=True)
        for words, may, norm in zip(segment, mask, lengths.norms, strict=True)
        if may
    ]
    told = iter(bm25_of_words([r[0] for r in readable], [r[1] for r in readable], query, (k1, b)))
    for (index, lengths), mask, chosen in zip(opened, masks, filters, strict=True):
        rows = np.flatnonzero(mask).astype(np.int32)
        oracle = {int(row): next(told) for row in rows}
        matching = {row for row, score in oracle.items() if score > 0.0}
        counts = index.frequencies(FIELD, terms, rows)
        weights = term_weights(asked, whole, terms)
        exact = bm25_exact(counts, lengths.norms[rows], weights, whole.average_length, (k1, b))
        assert exact == pytest.approx(list(oracle.values()), rel=1e-12, abs=0.0)
        localized = index.localize(FIELD, asked, whole, (k1, b))
        relative = LEXICAL_RELATIVE_ERROR + localized.excess_error
        error = relative * upper_bound(asked, whole)
        hits = index.search(localized, depth, chosen)
        found = hits.ordinals.tolist()
        assert set(found) <= matching
        assert len(found) == min(depth, len(matching))
        assert all(
            abs(score - oracle[row]) <= error
            for row, score in zip(found, hits.scores.tolist(), strict=True)
        )
        order = list(zip((-hits.scores).tolist(), found, strict=True))
        assert order == sorted(order)
        assert all(oracle[row] <= hits.frontier + error for row in matching - set(found))
        scored = index.score(localized, rows)
        assert all(
            abs(got - want) <= error
            for got, want in zip(scored.tolist(), oracle.values(), strict=True)
        )
        index.close()
    shutil.rmtree(folder)


@pytest.fixture
def index(tmp_path: Path) -> LexicalIndex:
    passages = [["a", "b"], ["a"], [], ["b", "b", "c"], ["a"], ["a", "a", "d"]]
    return index_words(tmp_path / "lucene", passages)[0]


def ask(*terms: str) -> LexicalQuery:
    return LexicalQuery(FIELD, tuple((term, 1.0) for term in terms), (0.9, 0.4))


def test_hits_are_those_that_lucenes_own_search_reports(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    passages = [
        [f"w{word}" for word in rng.zipf(1.4, size=rng.integers(1, 40)) if word < 99]
        for _ in range(3000)
    ]
    index, _ = index_words(tmp_path / "lucene", passages)
    query = ask("w1", "w3", "w7", "w90")
    bridge = lucene().bridge
    search = bridge.JavaMethod(
        "(Lorg/apache/lucene/search/Query;I)Lorg/apache/lucene/search/TopDocs;"
    )
    body = {
        "__javaclass__": "org/apache/lucene/search/IndexSearcher",
        "__javaconstructor__": [("(Lorg/apache/lucene/index/IndexReader;)V", False)],
        "search": search,
        "setSimilarity": bridge.JavaMethod("(Lorg/apache/lucene/search/similarities/Similarity;)V"),
    }
    searcher = bridge.MetaJavaClass("Searcher", (bridge.JavaClass,), body)(index._reader)
    similarity = lucene().BM25Similarity(*query.similarity)
    searcher.setSimilarity(similarity)
    disjunction = index._disjunction(query)
    top = searcher.search(disjunction, 50)
    told = [(hit.doc, hit.score) for hit in top.scoreDocs]
    hits = index.search(query, 50, index.filter(None))
    assert list(zip(hits.ordinals.tolist(), hits.scores.tolist(), strict=True)) == told
    index.close()


def test_equal_scores_go_to_the_lower_ordinal_at_the_cut(index: LexicalIndex) -> None:
    hits = index.search(ask("a"), 2, index.filter(None))
    assert hits.ordinals.tolist() == [5, 1]
    assert hits.frontier == float(hits.scores[1])
    deeper = index.search(ask("a"), 3, index.filter(None))
    assert deeper.ordinals.tolist() == [5, 1, 4]
    assert deeper.scores[1] == deeper.scores[2]


def test_the_frontier_is_zero_once_every_match_is_here(index: LexicalIndex) -> None:
    assert index.search(ask("b"), 5, index.filter(None)).frontier == 0.0
    assert index.search(ask("b"), 1, index.filter(None)).frontier > 0.0


def test_hidden_passages_take_no_place(index: LexicalIndex) -> None:
    allowed = np.array([True, False, True, True, True, False])
    hits = index.search(ask("a", "b"), 2, index.filter(allowed))
    assert sorted(hits.ordinals.tolist()) == [0, 3]
    assert index.document_frequencies(FIELD, ["a", "b", "z"], index.filter(allowed)).tolist() == [
        2,
        2,
        0,
    ]


@pytest.mark.parametrize("allowed", [[False] * 6, [True] * 6])
def test_nothing_and_everything_are_filters_too(index: LexicalIndex, allowed: list[bool]) -> None:
    hits = index.search(ask("a"), 9, index.filter(np.array(allowed)))
    assert len(hits.ordinals) == (4 if allowed[0] else 0)
    counts = index.document_frequencies(FIELD, ["a"], index.filter(np.array(allowed)))
    assert counts.tolist() == [4 if allowed[0] else 0]


def test_a_filter_of_another_length_is_refused(index: LexicalIndex) -> None:
    with pytest.raises(ValueError, match="shape"):
        index.filter(np.ones(5, np.bool_))


def test_a_depth_below_one_is_refused(index: LexicalIndex) -> None:
    with pytest.raises(ValueError, match="depth"):
        index.search(ask("a"), 0, index.filter(None))


def test_unknown_terms_and_fields_find_nothing(index: LexicalIndex) -> None:
    assert not len(index.search(ask("nowhere"), 5, index.filter(None)).ordinals)
    assert index.local_statistics("text_de", ["a"]) == FieldStatistics(0, 0, {})
    assert index.frequencies("text_de", ["a"], np.array([0], np.int32)).tolist() == [[0]]
    localized = index.localize("text_de", {"a": 1}, FieldStatistics(9, 9, {"a": 1}), (0.9, 0.4))
    assert not len(index.search(localized, 5, index.filter(None)).ordinals)


def test_frequencies_take_ordinals_in_any_order_with_repeats(index: LexicalIndex) -> None:
    rows = np.array([5, 0, 3, 5, 2], np.int32)
    assert index.frequencies(FIELD, ["b", "a"], rows).tolist() == [
        [0, 2],
        [1, 1],
        [2, 0],
        [0, 2],
        [0, 0],
    ]


def test_passages_without_tokens_do_not_count(index: LexicalIndex) -> None:
    assert index.passages == 6
    assert index.local_statistics(FIELD, ["a"]) == FieldStatistics(5, 10, {"a": 4})


def test_as_many_terms_as_4000_characters_make_are_one_query(tmp_path: Path) -> None:
    index, _ = index_words(tmp_path / "lucene", [[f"t{n}" for n in range(4000)], ["t1"]])
    hits = index.search(ask(*(f"t{n}" for n in range(4000))), 2, index.filter(None))
    assert sorted(hits.ordinals.tolist()) == [0, 1]


@pytest.mark.slow
def test_insertion_order_survives_flushes_and_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tiny buffer flushes often, so that many Lucene segments are merged into one.
    monkeypatch.setattr("engine.index.lexical_builder._BUFFER_MB", 0.1)
    passages = [[f"p{n}", *["x"] * (n % 50)] for n in range(3000)]
    index, lengths = index_words(tmp_path / "lucene", passages)
    assert lengths.tokens.tolist() == [len(words) for words in passages]
    for ordinal in (0, 1, 1499, 2999):
        hits = index.search(ask(f"p{ordinal}"), 5, index.filter(None))
        assert hits.ordinals.tolist() == [ordinal]


def test_length_bytes_are_lucenes_and_lengths_are_exact(tmp_path: Path) -> None:
    passages = [["x"] * n for n in (1, 24, 40, 41, 100, 1000, 5000)]
    _, lengths = index_words(tmp_path / "lucene", passages)
    small_float = lucene().bridge.autoclass("org.apache.lucene.util.SmallFloat")
    assert lengths.tokens.tolist() == [len(words) for words in passages]
    assert lengths.norms.tolist() == [
        small_float.intToByte4(len(words)) & 0xFF for words in passages
    ]
    assert (NORM_LENGTHS[lengths.norms] <= lengths.tokens).all()


def test_each_language_is_indexed_in_its_field(tmp_path: Path) -> None:
    (tmp_path / "lucene").mkdir()
    builder = LexicalBuilder(tmp_path / "lucene")
    builder.add(FIELD_CODES["text_en"], "running searches")
    builder.add(FIELD_CODES["text_zh"], "搜索引擎")
    builder.finish()
    index = LexicalIndex.open(tmp_path / "lucene")
    assert index.fields == ("text_en", "text_zh")
    assert index.frequencies("text_en", ["run"], np.array([0, 1], np.int32)).tolist() == [[1], [0]]
    length = len(passage_terms("text_zh", "搜索引擎"))
    assert index.local_statistics("text_zh", ["索引"]) == FieldStatistics(1, length, {"索引": 1})
    index.close()


def test_lucene_indexes_the_very_terms_of_every_field(tmp_path: Path) -> None:
    text = "Résumé: WHO's IT, Häuserfassade ERR_CONN_RESET, 搜索引擎 東京都の猫 " + "x" * 300
    (tmp_path / "lucene").mkdir()
    builder = LexicalBuilder(tmp_path / "lucene")
    for code in FIELD_CODES.values():
        builder.add(code, text)
    lengths = builder.finish()
    index = LexicalIndex.open(tmp_path / "lucene")
    for name, code in FIELD_CODES.items():
        counts = Counter(passage_terms(name, text))
        row = np.array([code], np.int32)
        assert index.frequencies(name, list(counts), row).tolist() == [list(counts.values())]
        assert lengths.tokens[code] == sum(counts.values())
    index.close()


def test_an_aborted_build_leaves_no_index(tmp_path: Path) -> None:
    builder = LexicalBuilder(tmp_path)
    builder.add(0, "text")
    builder.abort()
    with pytest.raises(SegmentRefusedError):
        LexicalIndex.open(tmp_path)


def test_a_folder_without_an_index_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SegmentRefusedError, match="segment s7 refused"):
        LexicalIndex.open(tmp_path, "s7")


def test_a_closed_index_fails_by_name(index: LexicalIndex) -> None:
    index.close()
    with pytest.raises(JavaError, match="AlreadyClosed"):
        index.search(ask("a"), 1, index.filter(None))


def test_k1_of_zero_counts_terms_only(index: LexicalIndex) -> None:
    whole = FieldStatistics(5, 10, {"a": 4})
    hits = index.search(index.localize(FIELD, {"a": 2}, whole, (0.0, 0.4)), 9, index.filter(None))
    expected = 2 * math.log(1 + (5 - 4 + 0.5) / 4.5)
    assert hits.ordinals.tolist() == [0, 1, 4, 5]
    assert hits.scores.tolist() == pytest.approx([expected] * 4, rel=LEXICAL_RELATIVE_ERROR)


def test_long_hidden_passages_move_no_score_beyond_the_bound_of_its_error(tmp_path: Path) -> None:
    # Short readable passages beside long hidden ones: b' lies next to 1, and is kept in float32.
    passages = [[WORDS[place % 2]] for place in range(50)] + [["w9"] * 8_000] * 200
    index, lengths = index_words(tmp_path / "lucene", passages)
    mask = np.arange(250) < 50
    chosen, asked = index.filter(mask), {"w0": 1}
    counts = index.document_frequencies(FIELD, ("w0",), chosen)
    whole = FieldStatistics(50, 50, {"w0": int(counts[0])})
    localized = index.localize(FIELD, asked, whole, (0.9, 0.4))
    hits = index.search(localized, 50, chosen)
    frequencies = index.frequencies(FIELD, ("w0",), hits.ordinals)
    weights = term_weights(asked, whole, ("w0",))
    norms = lengths.norms[hits.ordinals]
    exact = bm25_exact(frequencies, norms, weights, whole.average_length, (0.9, 0.4))
    off = np.abs(hits.scores - exact) / upper_bound(asked, whole)
    assert len(hits.ordinals) == 25
    assert off.max() > LEXICAL_RELATIVE_ERROR  # or this test shows nothing
    assert off.max() <= LEXICAL_RELATIVE_ERROR + localized.excess_error
    index.close()
