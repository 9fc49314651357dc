"""Vector search: scans, kinds of index, and filters, on real vectors.

`python -m benchmarks.vectors --vectors FILE... --queries FILE... --json result.json`

Times are processor milliseconds a query, re-scoring from the stored rows included: medians over
rounds in which all variants take turns, so that a busy machine disturbs all alike. Recall is
against exact search, for queries as people ask them. More rows than there are real ones are made:
a real row moved by a part of the difference between two other, near ones (`grow`).
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import faiss as typed_faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.provenance import provenance
from engine.index.vector import VectorFacts, VectorIndex
from engine.index.vector_builder import RECALL_TARGET, measure_recall
from engine.index.vector_codes import code_error, half_codes, product_codes, scan_half, scan_product
from engine.index.vector_rows import gathered_products, nearest, product_error

faiss: Any = typed_faiss
"""Its stubs lack half of its classes."""

Float32 = NDArray[np.float32]
Allowed = NDArray[np.bool_]
Ask = Callable[[Float32], NDArray[Any]]

SEED = 1
SHARES = (1.0, 0.1, 0.01, 0.001, 0.0001)
DEPTHS = (100, 200, 800)
_WINDOW = 200


def read_rows(paths: Sequence[Path]) -> Float32:
    """Read vectors from .npy files, or from the segments of store folders; equal rows once."""
    files = [f for p in paths for f in (sorted(p.glob("segments/*/vectors.npy")) or [p])]
    rows = np.unique(np.concatenate([np.load(f).astype(np.float32) for f in files]), axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.ascontiguousarray(np.random.default_rng(SEED).permutation(rows))


def grow(rows: Float32, count: int) -> Float32:
    """Return `count` rows: the real ones, then x_i + t (x_j - x_k), x_k one of x_j's ten nearest.

    Args:
        rows: float32 of shape (n, dimension), real.
        count: how many are wanted; fewer than n: the first.
    """
    rng = np.random.default_rng(SEED)
    near = np.empty((len(rows), 10), np.int64)
    for start in range(0, len(rows), 1024):
        similar = rows[start : start + 1024] @ rows.T
        similar[np.arange(len(similar)), np.arange(start, start + len(similar))] = -1.0
        near[start : start + 1024] = np.argpartition(-similar, 10, axis=1)[:, :10]
    made = max(count - len(rows), 0)
    at, one = rng.integers(len(rows), size=made), rng.integers(len(rows), size=made)
    other = near[one, rng.integers(10, size=made)]
    step = rng.uniform(0.2, 0.9, size=(made, 1)).astype(np.float32)
    new = rows[at] + step * (rows[one] - rows[other])
    new /= np.linalg.norm(new, axis=1, keepdims=True)
    return np.ascontiguousarray(np.concatenate([rows, new])[:count])


def race(
    asks: Mapping[str, Ask], queries: Float32, rounds: int
) -> tuple[dict[str, float], dict[str, list[NDArray[Any]]]]:
    """Let variants take turns; return the median processor milliseconds, and what each found."""
    spent: dict[str, list[float]] = {name: [] for name in asks}
    found: dict[str, list[NDArray[Any]]] = {}
    for _ in range(rounds):
        for name, ask in asks.items():
            started = time.process_time()
            found[name] = [ask(query) for query in queries]
            spent[name].append((time.process_time() - started) * 1e3 / len(queries))
    return {name: round(statistics.median(took), 3) for name, took in spent.items()}, found


def recall(
    rows: Float32, queries: Float32, found: Sequence[NDArray[Any]], depth: int, allowed: Allowed
) -> float:
    """Return the mean share of the `depth` nearest allowed rows that were found, ties as found."""
    shares = []
    for query, ordinals in zip(queries, found, strict=True):
        scores = np.where(allowed, rows @ query, -2.0)
        places = min(depth, int(np.count_nonzero(allowed)))
        edge = np.partition(scores, len(scores) - places)[len(scores) - places]
        hit = np.count_nonzero(scores[np.unique(ordinals)] >= edge - 1e-6)
        shares.append(min(int(hit), places) / places)
    return round(float(np.mean(shares)), 4)


def _kept(rows: Float32, query: Float32, ordinals: NDArray[Any], depth: int) -> NDArray[Any]:
    """Score candidates again from the stored rows, and keep the best."""
    real = ordinals[ordinals >= 0].astype(np.int64)
    products = gathered_products(rows, real, query)
    error = product_error(rows.shape[1])
    return nearest(rows, query, (products, real), depth, error).ordinals


# --------------------------------------------------------------------------------------- scans


def scans(rows: Float32, queries: Float32, rounds: int) -> list[dict[str, Any]]:
    """Compare exact scans: time for depth 100, and the candidates that the proof needs."""
    dimension, depth = rows.shape[1], DEPTHS[0]
    flat = faiss.IndexFlatIP(dimension)
    flat.add(rows)
    eight = faiss.IndexScalarQuantizer(
        dimension, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    eight.train(rows)
    eight.add(rows)
    indexes = {"float32": flat, "half": half_codes(rows), "8 bit": eight}
    errors = {n: product_error(dimension, code_error(i, rows)) for n, i in indexes.items()}
    needed: dict[str, int] = {}
    for name, index in indexes.items():
        counts = []
        for query in queries:
            edge = np.sort(rows @ query)[-depth]
            proposed = index.search(query[None, :], min(20 * depth, len(rows)))[0][0]
            counts.append(int(np.count_nonzero(proposed >= edge - errors[name])))
        needed[name] = max(int(statistics.median(counts)), depth) + 32

    def ask(name: str) -> Ask:
        return lambda query: _kept(
            rows, query, indexes[name].search(query[None, :], needed[name])[1][0], depth
        )

    def by_numpy(query: Float32) -> NDArray[Any]:
        best = np.argpartition(-(rows @ query), depth + 32)[: depth + 32]
        return _kept(rows, query, best, depth)

    asks: dict[str, Ask] = {name: ask(name) for name in indexes} | {"numpy": by_numpy}
    took, _ = race(asks, queries, rounds)
    return [
        {"scan": n, "ms": ms, "error_bound": errors.get(n, errors["float32"]),
         "candidates": needed.get(n, depth + 32)}
        for n, ms in took.items()
    ]  # fmt: skip


# --------------------------------------------------------------------------------------- kinds


def _kinds(rows: Float32, graphs: bool) -> dict[str, Callable[[], Any]]:
    dimension, metric = rows.shape[1], faiss.METRIC_INNER_PRODUCT
    lists = int(4 * len(rows) ** 0.5)

    def graph() -> Any:
        index = faiss.IndexHNSWSQ(dimension, faiss.ScalarQuantizer.QT_8bit, 32, metric)
        index.hnsw.efConstruction = 200
        return index

    def rabitq() -> Any:
        centre = faiss.IndexFlatIP(dimension)
        return faiss.IndexIVFRaBitQFastScan(centre, dimension, 1, metric, 32, True, 1)

    made: dict[str, Callable[[], Any]] = {
        "RaBitQ, 1 bit, one list": rabitq,
        "IVF-PQ, 4 bit": lambda: faiss.index_factory(
            dimension, f"IVF{lists},PQ{dimension // 2}x4fs", metric
        ),
    }
    return made | ({"HNSW, M 32, 8 bit": graph} if graphs else {})


def _ask_kind(rows: Float32, name: str, index: Any, breadth: float, depth: int) -> Ask:
    taken = min(int(8 * (depth + 100)), len(rows))
    if name.startswith("HNSW"):
        taken = min(int(1.5 * depth), len(rows))
        parameters = faiss.SearchParametersHNSW(efSearch=int(breadth * taken))
    else:
        probes = max(int(breadth * index.nlist), 1)
        parameters = faiss.SearchParametersIVF(nprobe=probes)
    return lambda query: _kept(
        rows, query, index.search(query[None, :], taken, params=parameters)[1][0], depth
    )


def kinds(rows: Float32, queries: Float32, rounds: int, *, graphs: bool) -> list[dict[str, Any]]:
    """Compare approximate indexes: recall and time by depth, building, bytes a row."""
    everything = np.ones(len(rows), np.bool_)
    breadths = {"HNSW, M 32, 8 bit": (1.0, 2.0), "IVF-PQ, 4 bit": (0.125, 0.25, 0.5)}
    variants: dict[str, tuple[dict[str, Any], Callable[[int], Ask]]] = {}
    started = time.process_time()
    ours = product_codes(rows, SEED)
    facts = chosen_facts(ours, rows)
    measured = time.process_time()
    index = VectorIndex(ours, rows, facts, prove=False)
    variants["product codes, 4 bit, one list (ours)"] = (
        {"build_s": round(measured - started, 1), "recall_at_build": facts.recall,
         "over_fetch": facts.over_fetch, "bytes_per_row": _bytes(ours, rows)},
        lambda depth: lambda query: index.search(query, depth).ordinals,
    )  # fmt: skip
    for name, make in _kinds(rows, graphs).items():
        started = time.process_time()
        made = make()
        made.train(rows)
        made.add(rows)
        about = {
            "build_s": round(time.process_time() - started, 1),
            "bytes_per_row": _bytes(made, rows),
        }
        for breadth in breadths.get(name, (1.0,)):
            label = f"{name}, breadth {breadth}" if name in breadths else name
            variants[label] = (
                about,
                functools.partial(_ask_kind, rows, name, made, breadth),
            )
    report: dict[str, dict[str, Any]] = {n: {"kind": n, **a} for n, (a, _) in variants.items()}
    for depth in DEPTHS:
        took, found = race({n: make(depth) for n, (_, make) in variants.items()}, queries, rounds)
        for name, ms in took.items():
            share = recall(rows, queries, found[name], depth, everything)
            report[name][f"depth_{depth}"] = {"recall": share, "ms": ms}
    return list(report.values())


def chosen_facts(index: Any, rows: Float32) -> VectorFacts:
    """Return what a build would record of product codes."""
    measured = measure_recall(index, rows)
    enough = [over for over, shares in measured.items() if min(shares) >= RECALL_TARGET]
    over_fetch = min(enough, default=max(measured))
    return VectorFacts(True, 0.0, over_fetch, measured[over_fetch])


def _bytes(index: Any, rows: Float32) -> int:
    return round(len(faiss.serialize_index(index)) / len(rows))


# ------------------------------------------------------------------------------------- filters

MaskOf = Callable[[Float32], Allowed]


def _masks(rows: Float32) -> dict[str, MaskOf]:
    """Return filters by name, each as a function of the query."""
    rng = np.random.default_rng(SEED)
    count = len(rows)

    def fixed(mask: Allowed) -> MaskOf:
        return lambda _: mask

    def below(share: float) -> MaskOf:
        return lambda query: rows @ query < np.quantile(rows @ query, share)

    cluster = np.argsort(-(rows @ rows[0]))[: count // 5]
    masks = {f"{share:.2%}": fixed(rng.random(count) < share) for share in SHARES}
    return masks | {
        "one": fixed(np.arange(count) == count // 2),
        "one cluster, a fifth": fixed(np.isin(np.arange(count), cluster)),
        "the half farther from the query": below(0.5),
        "all but the tenth nearest to it": below(0.9),
    }


class _Strategies:
    """The pure strategies and the planner on the same rows, at the rank window."""

    def __init__(self, rows: Float32) -> None:
        """Build both kinds of codes."""
        self._rows, self._error = rows, product_error(rows.shape[1])
        self._half, self._product = half_codes(rows), product_codes(rows, SEED)
        self._coded = VectorFacts(False, code_error(self._half, rows))
        self._compressed = chosen_facts(self._product, rows)
        self.exact = VectorIndex(self._half, rows, self._coded, prove=False)
        self.approximate = VectorIndex(self._product, rows, self._compressed, prove=False)

    def gather(self, query: Float32, mask: Allowed) -> NDArray[Any]:
        """Copy the allowed rows and score them."""
        allowed = np.flatnonzero(mask)
        products = gathered_products(self._rows, allowed, query)
        return nearest(self._rows, query, (products, allowed), _WINDOW, self._error).ordinals

    def scan(self, query: Float32, mask: Allowed) -> NDArray[Any]:
        """Scan half-precision codes under a selector."""
        taken = min(_WINDOW + 32, int(np.count_nonzero(mask)))
        found = scan_half(self._half, query, taken, mask)
        error = self._error + self._coded.code_error
        return nearest(self._rows, query, found, _WINDOW, error).ordinals

    def codes(self, query: Float32, mask: Allowed) -> NDArray[Any]:
        """Scan compressed codes under a selector, without looking whether that was enough."""
        taken = min(self._compressed.candidates(_WINDOW), int(np.count_nonzero(mask)))
        return _kept(self._rows, query, scan_product(self._product, query, taken, mask)[1], _WINDOW)

    def asks(self, masks: Mapping[bytes, Allowed]) -> dict[str, Ask]:
        """Return every strategy as a question under the filter of its query."""

        def under(search: Callable[[Float32, Allowed], NDArray[Any]]) -> Ask:
            return lambda query: search(query, masks[query.tobytes()])

        return {
            "only gather": under(self.gather),
            "only scan": under(self.scan),
            "only codes": under(self.codes),
            "planner, exact": under(lambda q, m: self.exact.search(q, _WINDOW, m).ordinals),
            "planner, approximate": under(
                lambda q, m: self.approximate.search(q, _WINDOW, m).ordinals
            ),
        }


def filters(rows: Float32, queries: Float32, rounds: int) -> list[dict[str, Any]]:
    """Compare the planner with pure strategies, by filter, at the rank window."""
    strategies, report = _Strategies(rows), []
    for name, mask_of in _masks(rows).items():
        masks = {query.tobytes(): mask_of(query) for query in queries}
        sizes = [int(np.count_nonzero(mask)) for mask in masks.values()]
        if not min(sizes):
            continue
        took, found = race(strategies.asks(masks), queries, rounds)
        shares: dict[str, float] = {}
        for label, lists in found.items():
            each = [
                recall(rows, query[None, :], [ordinals], _WINDOW, masks[query.tobytes()])
                for query, ordinals in zip(queries, lists, strict=True)
            ]
            shares[label] = round(float(np.mean(each)), 4)
        hits = [strategies.approximate.search(q, _WINDOW, masks[q.tobytes()]) for q in queries]
        report.append(
            {
                "allowed": name,
                "rows_allowed": int(statistics.median(sizes)),
                "ms": took,
                "recall": shares,
                "approximate_certified": round(float(np.mean([h.certified for h in hits])), 2),
                "approximate_missing": max(
                    min(_WINDOW, size) - len(hit.ordinals)
                    for size, hit in zip(sizes, hits, strict=True)
                ),
            }
        )
    return report


# ----------------------------------------------------------------------------------------- run


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vectors", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--vectors", type=Path, nargs="+", required=True, metavar="PATH")
    parser.add_argument("--queries", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 100_000], metavar="ROWS")
    parser.add_argument("--graphs-up-to", type=int, default=20_000, metavar="ROWS")
    parser.add_argument("--asked", type=int, default=20, metavar="QUERIES")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return its document."""
    options = _arguments(argv)
    faiss.omp_set_num_threads(1)
    real, asked = read_rows(options.vectors), read_rows(options.queries)[: options.asked]
    sizes = []
    for size in options.sizes:
        rows = grow(real, size)
        sizes.append(
            {
                "rows": len(rows),
                "real_rows": min(len(real), len(rows)),
                "scans": scans(rows, asked, options.rounds),
                "kinds": kinds(rows, asked, options.rounds, graphs=size <= options.graphs_up_to),
                "filters": filters(rows, asked, options.rounds),
            }
        )
        sys.stderr.write(f"benchmarks.vectors: {size} rows done\n")
    document = {
        "benchmark": "vectors",
        "dimension": int(real.shape[1]),
        "seed": SEED,
        "queries": len(asked),
        "rounds": options.rounds,
        "depth_of_filters": _WINDOW,
        "milliseconds": "of the processor, a query; medians of interleaved rounds",
        "sizes": sizes,
        **provenance("benchmarks.vectors"),
    }
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    if options.json is not None:
        options.json.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    return document


if __name__ == "__main__":
    run()
