"""Frames: the questions and answers of `request`, packed. One frame is one message.

A frame is the magic with the version, the length of a JSON header, the header, and raw
little-endian arrays, each at a multiple of 8 bytes. Floats and integers survive to the bit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from engine import errors
from engine.errors import EngineError, FrameError, OperatorError
from engine.ids import BaseId, ItemId, RevisionId, ShardId
from engine.search.request import (
    Answer,
    Candidates,
    Depth,
    Explained,
    ExplainQuery,
    FieldTerms,
    Found,
    Frontier,
    Generations,
    GenerationsQuery,
    Hydrated,
    HydrateQuery,
    Passage,
    PassageFacts,
    Pin,
    Positions,
    Question,
    Readable,
    Refined,
    RefineQuery,
    SearchQuery,
    SegmentFacts,
    ShardFacts,
    Statistics,
    StatisticsQuery,
)

MAGIC = b"OVF1"
_PREFIX = struct.Struct("<4sI")
_ALIGN = 8
_DTYPES = {name: np.dtype(f"<{name}") for name in ("i4", "f4", "f8")}

Body = dict[str, Any]


class _Writer:
    """Collects the arrays of one frame; the body refers to them by number."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []

    def put(self, array: NDArray[Any], name: str) -> int:
        self.arrays.append(np.ascontiguousarray(array, _DTYPES[name]))
        return len(self.arrays) - 1

    def frame(self, kind: str, body: Body) -> bytes:
        sizes = [[array.dtype.str[1:], len(array)] for array in self.arrays]
        header = orjson.dumps({"kind": kind, "body": body, "arrays": sizes})
        header += b" " * (-(len(header) + _PREFIX.size) % _ALIGN)
        parts = [_PREFIX.pack(MAGIC, len(header)), header]
        for array in self.arrays:
            data = array.tobytes()
            parts += [data, bytes(-len(data) % _ALIGN)]
        return b"".join(parts)


class _Reader:
    """A frame taken apart. Arrays are read-only views of its bytes."""

    def __init__(self, frame: bytes) -> None:
        try:
            magic, length = _PREFIX.unpack_from(frame)
            if magic != MAGIC:
                raise FrameError(f"a frame starts with {magic!r}, expected {MAGIC!r}")
            header = orjson.loads(frame[_PREFIX.size : _PREFIX.size + length])
            self.kind: str = header["kind"]
            self.body: Body = header["body"]
            self.arrays: list[NDArray[Any]] = []
            offset = _PREFIX.size + length
            for name, count in header["arrays"]:
                self.arrays.append(np.frombuffer(frame, _DTYPES[name], count, offset))
                size = self.arrays[-1].nbytes
                offset += size + -size % _ALIGN
        except (struct.error, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise FrameError(f"a frame of {len(frame)} bytes is damaged") from error


# -------------------------------------------------------------------------------- the parts


def _pin(pin: Pin) -> Body:
    return {"generation": pin.generation, "catalog": pin.catalog}


def _readable(readable: Readable) -> list[str] | None:
    return None if readable is None else sorted(readable)


def _read_readable(value: list[str] | None) -> Readable:
    return None if value is None else frozenset(BaseId(base) for base in value)


def _fields(fields: Mapping[str, FieldTerms]) -> list[list[Any]]:
    return [
        [
            name,
            field.terms,
            field.query_frequencies,
            field.passages,
            field.tokens,
            field.document_frequencies,
        ]
        for name, field in fields.items()
    ]


def _read_fields(rows: list[list[Any]]) -> dict[str, FieldTerms]:
    return {
        name: FieldTerms(tuple(terms), tuple(counts), passages, tokens, tuple(frequencies))
        for name, terms, counts, passages, tokens, frequencies in rows
    }


def _positions(writer: _Writer, positions: Mapping[ShardId, Positions]) -> list[list[int]]:
    return [
        [shard, writer.put(where.segments, "i4"), writer.put(where.ordinals, "i4")]
        for shard, where in positions.items()
    ]


def _read_positions(reader: _Reader) -> dict[ShardId, Positions]:
    return {
        ShardId(shard): Positions(reader.arrays[segments], reader.arrays[ordinals])
        for shard, segments, ordinals in reader.body["positions"]
    }


# -------------------------------------------------------------------------------- questions


def _pack_search(query: SearchQuery, writer: _Writer) -> Body:
    vector = None if query.vector is None else writer.put(query.vector, "f4")
    return {
        "pin": _pin(query.pin),
        "readable": _readable(query.readable),
        "base": query.base,
        "fields": _fields(query.fields),
        "vector": vector,
        "k1": query.k1,
        "b": query.b,
        "depths": [[shard, d.lexical, d.semantic] for shard, d in query.depths.items()],
        "complete": query.complete,
    }


def _read_search(reader: _Reader) -> SearchQuery:
    body = reader.body
    return SearchQuery(
        pin=Pin(**body["pin"]),
        readable=_read_readable(body["readable"]),
        base=None if body["base"] is None else BaseId(body["base"]),
        fields=_read_fields(body["fields"]),
        vector=None if body["vector"] is None else reader.arrays[body["vector"]],
        k1=float(body["k1"]),
        b=float(body["b"]),
        depths={ShardId(s): Depth(lexical, semantic) for s, lexical, semantic in body["depths"]},
        complete=body["complete"],
    )


def pack_question(question: Question, seconds: float) -> bytes:
    """Pack a question, and the seconds within which it must be answered, into one frame."""
    writer = _Writer()
    body: Body
    match question:
        case StatisticsQuery():
            kind, body = (
                "statistics?",
                {
                    "pin": _pin(question.pin),
                    "readable": _readable(question.readable),
                    "text": question.text,
                },
            )
        case SearchQuery():
            kind, body = "search?", _pack_search(question, writer)
        case RefineQuery():
            kind, body = (
                "refine?",
                {
                    "pin": _pin(question.pin),
                    "fields": _fields(question.fields),
                    "k1": question.k1,
                    "b": question.b,
                    "positions": _positions(writer, question.positions),
                },
            )
        case HydrateQuery():
            kind, body = (
                "hydrate?",
                {
                    "pin": _pin(question.pin),
                    "text": question.text,
                    "positions": _positions(writer, question.positions),
                },
            )
        case ExplainQuery():
            kind, body = (
                "explain?",
                {
                    "pin": _pin(question.pin),
                    "terms": list(question.terms.items()),
                    "positions": _positions(writer, question.positions),
                },
            )
        case GenerationsQuery():
            kind, body = "generations?", {}
    return writer.frame(kind, {**body, "seconds": seconds})


def _read_statistics_query(reader: _Reader) -> StatisticsQuery:
    body = reader.body
    return StatisticsQuery(Pin(**body["pin"]), _read_readable(body["readable"]), body["text"])


def _read_refine_query(reader: _Reader) -> RefineQuery:
    body = reader.body
    pin, fields = Pin(**body["pin"]), _read_fields(body["fields"])
    return RefineQuery(pin, fields, float(body["k1"]), float(body["b"]), _read_positions(reader))


def _read_hydrate_query(reader: _Reader) -> HydrateQuery:
    pin = Pin(**reader.body["pin"])
    return HydrateQuery(pin, reader.body["text"], _read_positions(reader))


def _read_explain_query(reader: _Reader) -> ExplainQuery:
    pin, terms = Pin(**reader.body["pin"]), reader.body["terms"]
    return ExplainQuery(pin, {name: tuple(t) for name, t in terms}, _read_positions(reader))


_QUESTIONS: dict[str, Callable[[_Reader], Question]] = {
    "statistics?": _read_statistics_query,
    "search?": _read_search,
    "refine?": _read_refine_query,
    "hydrate?": _read_hydrate_query,
    "explain?": _read_explain_query,
    "generations?": lambda _: GenerationsQuery(),
}


def unpack_question(frame: bytes) -> tuple[Question, float]:
    """Return the question that a frame carries, and its seconds.

    Raises:
        FrameError: damaged, of another version, or not a question.
    """
    reader = _Reader(frame)
    read = _QUESTIONS.get(reader.kind)
    if read is None:
        raise FrameError(f"a frame of kind {reader.kind!r} is not a question")
    return read(reader), float(reader.body["seconds"])


# ---------------------------------------------------------------------------------- answers

_COLUMNS = (
    ("segments", "i4"),
    ("ordinals", "i4"),
    ("items", "i4"),
    ("starts", "i4"),
    ("fields", "i4"),
    ("lexical", "f8"),
    ("semantic", "f8"),
)


def _pack_candidates(found: Candidates, writer: _Writer) -> Body:
    return {
        "shard": found.shard,
        "columns": [writer.put(getattr(found, name), kind) for name, kind in _COLUMNS],
        "item_ids": found.item_ids,
        "field_names": found.field_names,
        "lexical_frontier": dict(found.frontier.lexical),
        "semantic_frontier": found.frontier.semantic,
        "certified": found.certified,
        "excess_errors": dict(found.excess_errors),
    }


def _read_candidates(body: Body, reader: _Reader) -> Candidates:
    columns = zip(_COLUMNS, body["columns"], strict=True)
    return Candidates(
        shard=ShardId(body["shard"]),
        item_ids=tuple(ItemId(item) for item in body["item_ids"]),
        field_names=tuple(body["field_names"]),
        frontier=Frontier(body["lexical_frontier"], body["semantic_frontier"]),
        certified=body["certified"],
        excess_errors=body["excess_errors"],
        **{name: reader.arrays[number] for (name, _), number in columns},
    )


def _pack_passage(passage: Passage) -> list[Any]:
    return [
        passage.base,
        passage.item,
        passage.revision,
        passage.title,
        passage.excerpt,
        passage.excerpt_offset,
        passage.source_type,
        passage.source_ref,
        passage.content_sha256,
    ]


def _read_passage(row: list[Any]) -> Passage:
    base, item, revision, *shown = row
    return Passage(BaseId(base), ItemId(item), RevisionId(revision), *shown)


def _pack_facts(facts: ShardFacts) -> list[Any]:
    segments = [[one.name, one.exact, one.recall] for one in facts.segments]
    passages = [
        [p.segment, p.ordinal, p.field, p.start, p.end, p.tokens, p.length, p.frequencies]
        for p in facts.passages
    ]
    return [facts.shard, segments, passages]


def _read_facts(row: list[Any]) -> ShardFacts:
    shard, segments, passages = row
    return ShardFacts(
        ShardId(shard),
        tuple(SegmentFacts(*one) for one in segments),
        tuple(_read_passage_facts(one) for one in passages),
    )


def _read_passage_facts(row: list[Any]) -> PassageFacts:
    segment, ordinal, field, start, end, tokens, length, frequencies = row
    return PassageFacts(segment, ordinal, field, start, end, tokens, length, tuple(frequencies))


def pack_answer(answer: Answer) -> bytes:
    """Pack an answer into one frame."""
    writer = _Writer()
    match answer:
        case Statistics():
            return writer.frame("statistics", {"fields": _fields(answer.fields)})
        case Found():
            shards = [_pack_candidates(found, writer) for found in answer.shards]
            return writer.frame("found", {"shards": shards})
        case Refined():
            scores = [[shard, writer.put(row, "f8")] for shard, row in answer.lexical.items()]
            return writer.frame("refined", {"lexical": scores})
        case Hydrated():
            rows = [
                [shard, [_pack_passage(passage) for passage in passages]]
                for shard, passages in answer.passages.items()
            ]
            return writer.frame("hydrated", {"passages": rows})
        case Explained():
            return writer.frame("explained", {"shards": [_pack_facts(f) for f in answer.shards]})
        case Generations():
            return writer.frame("generations", {"shards": list(answer.shards.items())})


def pack_error(error: EngineError) -> bytes:
    """Pack an error into one frame: its code and what it was made from."""
    body = {"code": error.code, "arguments": list(error.args), "message": str(error)}
    return _Writer().frame("error", body)


def _error_classes() -> dict[str, type[EngineError]]:
    found = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, EngineError) and value is not EngineError
    ]
    return {error.code: error for error in found}


def _read_error(body: Body) -> EngineError:
    error = _error_classes().get(body["code"])
    if error is None:
        return OperatorError(body["message"])
    return error(*body["arguments"])


def _read_hydrated(reader: _Reader) -> Hydrated:
    rows = reader.body["passages"]
    return Hydrated(
        {ShardId(shard): tuple(_read_passage(row) for row in passages) for shard, passages in rows}
    )


def _read_generations(reader: _Reader) -> Generations:
    rows = reader.body["shards"]
    return Generations({number: tuple(ShardId(s) for s in shards) for number, shards in rows})


_ANSWERS: dict[str, Callable[[_Reader], Answer]] = {
    "statistics": lambda reader: Statistics(_read_fields(reader.body["fields"])),
    "found": lambda reader: Found(
        tuple(_read_candidates(body, reader) for body in reader.body["shards"])
    ),
    "refined": lambda reader: Refined(
        {ShardId(shard): reader.arrays[number] for shard, number in reader.body["lexical"]}
    ),
    "hydrated": _read_hydrated,
    "explained": lambda reader: Explained(tuple(_read_facts(row) for row in reader.body["shards"])),
    "generations": _read_generations,
}


def unpack_answer[A: Answer](frame: bytes, kind: type[A]) -> A:
    """Return the answer that a frame carries.

    Args:
        frame: what `pack_answer` or `pack_error` made.
        kind: the answer expected.

    Raises:
        EngineError: the error that the frame carries, rebuilt.
        FrameError: damaged, of another version, or of another kind.
    """
    reader = _Reader(frame)
    if reader.kind == "error":
        raise _read_error(reader.body)
    read = _ANSWERS.get(reader.kind)
    answer = None if read is None else read(reader)
    if not isinstance(answer, kind):
        raise FrameError(f"a frame of kind {reader.kind!r} is not {kind.__name__}")
    return answer
