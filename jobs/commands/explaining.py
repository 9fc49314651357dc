"""Explanations, shown readably on a terminal.

Counts, k1, b, alpha, cosines and the floor are shown in full; what follows from them has six
decimals, each of which anybody can compute again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jobs.commands.rendering import plain, show_result

_INDENT = 4
_LABEL = 10

Json = Mapping[str, Any]


def show_explanation(console: Console, explanation: Json) -> None:
    """Print an explanation: each result with its arithmetic, then what the whole query shares."""
    query, answer = explanation["query"], explanation["answer"]
    if not answer["results"]:
        console.print(plain("No published passage matches.", "dim"))
    pairs = zip(answer["results"], explanation["results"], strict=True)
    for position, (result, told) in enumerate(pairs, start=1):
        show_result(console, position, result, query["text"])
        _show_arithmetic(console, query, told)
        console.print()
    if explanation["state"] is None:
        _line(console, "state", "nothing to search: no generation, or no base that may be read")
        return
    _show_query(console, query)
    _show_search(console, explanation)


def _line(console: Console, label: str, text: str, style: str = "") -> None:
    line = Text(" " * _INDENT)
    line.append(f"{label:<{_LABEL}}", style="dim")
    line.append_text(plain(text, style))
    console.print(line, soft_wrap=True)


def _columns(console: Console, headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table of a text column and number columns."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    console.print(Padding(table, (0, 0, 0, _INDENT + _LABEL)))


def _six(number: float) -> str:
    return f"{number:.6f}"


# -------------------------------------------------------------------------------- one result


def _show_arithmetic(console: Console, query: Json, result: Json) -> None:
    _line(console, "score", _score(query, result))
    lexical, semantic = result["lexical"], result["semantic"]
    if lexical is not None:
        _line(console, "lexical", _lexical(lexical, result["ranks"]["lexical"]))
        if lexical["terms"]:
            names = ("term", "qtf", "n", "idf", "tf", "tf part", "contribution")
            _columns(console, names, (_term(one) for one in lexical["terms"]))
    if semantic is not None:
        _line(console, "semantic", _semantic(semantic, result["ranks"]["semantic"]))
    passage = result["passage"]
    chosen = f"the best by {result['chosen_by']} score of {result['candidates_of_item']}"
    _line(console, "passage", f"{_place(passage)}; {chosen} candidates of the item")
    for side, rank in result["ranks"].items():
        if rank is not None and rank["passage"] != passage:
            _line(
                console, "", f"ranked {side} {rank['rank']} by another: {_place(rank['passage'])}"
            )


def _score(query: Json, result: Json) -> str:
    score = _six(result["score"])
    if query["mode"] == "hybrid":
        alpha, lex, sem = query["alpha"], result["lexical"]["lex"], result["semantic"]["sem"]
        return f"{alpha} * lex {_six(lex)} + (1 - {alpha}) * sem {_six(sem)} = {score}"
    if query["mode"] == "rrf":
        ranks = [one["rank"] for one in result["ranks"].values() if one is not None]
        terms = [f"1 / ({query['rank_constant']} + {rank})" for rank in ranks]
        return f"{' + '.join(terms)} = {score}"
    return f"{query['formula']} = {score}"


def _rank(rank: Json | None) -> str:
    return "outside the rank window" if rank is None else f"rank {rank['rank']}"


def _lexical(lexical: Json, rank: Json | None) -> str:
    tokens, length = lexical["tokens"], lexical["length"]
    text = f"{_rank(rank)}, BM25 {_six(lexical['bm25'])}, at most {_six(lexical['upper_bound'])}"
    if lexical["lex"] is not None:
        text += f", lex {_six(lexical['lex'])}"
    return text + f"; {lexical['field']}, {tokens} tokens counted as {length}"


def _term(term: Json) -> tuple[object, ...]:
    numbers = (_six(term["tf_part"]), _six(term["contribution"]))
    return (term["term"], term["qtf"], term["n"], _six(term["idf"]), term["tf"], *numbers)


def _semantic(semantic: Json, rank: Json | None) -> str:
    text = f"{_rank(rank)}, cosine {semantic['cosine']!r}"
    if semantic["sem"] is not None:
        text += f", by chance {semantic['floor']!r}, sem {_six(semantic['sem'])}"
    return text


def _place(passage: Json) -> str:
    characters = f"characters {passage['char_start']} to {passage['char_end']}"
    where = f"shard {passage['shard']}, segment {passage['segment']}"
    return f"{characters}, {where}, ordinal {passage['ordinal']}"


# ------------------------------------------------------------------------------- the whole query


def _show_query(console: Console, query: Json) -> None:
    _line(console, "query", f"{query['mode']}: {query['formula']}")
    for field in query["fields"]:
        _line(console, "field", _field(field, query))
        held = [(t["term"], t["qtf"], t["n"], _six(t["idf"])) for t in field["terms"] if t["n"]]
        if held:
            _columns(console, ("term", "qtf", "n", "idf"), held)
    if query["found_nowhere"]:
        _line(console, "nowhere", ", ".join(query["found_nowhere"]))


def _field(field: Json, query: Json) -> str:
    return (
        f"{field['field']}: N {field['passages']} passages, T {field['tokens']} tokens, "
        f"average {_six(field['average_length'])}, k1 {query['k1']}, b {query['b']}, "
        f"{len(field['terms'])} terms, at most {_six(field['upper_bound'])}"
    )


def _show_search(console: Console, explanation: Json) -> None:
    state, effort = explanation["state"], explanation["effort"]
    times = ", ".join(f"{stage} {spent:.1f}" for stage, spent in effort["milliseconds"].items())
    _line(
        console,
        "state",
        f"generation {state['generation']}, catalog {state['catalog_version']}, "
        f"{state['shards_answered']} of {state['shards']} shards, encoder {state['encoder'][:12]}",
    )
    _line(
        console,
        "effort",
        f"rounds {effort['rounds']}, candidates {effort['candidates']}, "
        f"refined {effort['refined']}, attempts {effort['attempts']}",
    )
    _line(console, "ms", times)
    for shard in explanation["shards"]:
        _line(console, f"shard {shard['shard']}", _shard(shard))
    if explanation["certified"]:
        _line(console, "certified", "no passage left out could have entered", "green")
    else:
        reasons = "; ".join(explanation["uncertified_because"])
        _line(console, "certified", f"no: {reasons}", "bold yellow")


def _shard(shard: Json) -> str:
    segments = shard["segments"]
    text = f"depth {shard['lexical_depth']} lexical, {shard['semantic_depth']} semantic"
    text += f", segments {len(segments)}"
    for one in segments:
        if not one["exact"]:
            recall = "not measured" if one["recall"] is None else repr(one["recall"])
            text += f"; {one['segment']} approximate, recall {recall}"
    return text
