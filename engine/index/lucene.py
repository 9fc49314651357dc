"""The Lucene classes that are used, each with the members that are used, and no others.

pyjnius reflects over a whole class and resolves overloads at every call, which costs 20 to 50
microseconds; declared members cost 1 to 5. Reached through `jvm.jnius`, so it is no door itself.

**The rule of every Java call.** pyjnius keeps the receiver of a call in the method object that all
threads share, from the moment the method is looked up until Java is entered. So the receiver is
a variable or an attribute of `self`, and every argument is a constant or a variable, computed
before: then no other thread gets a turn in between. A test reads the source for it.
"""

from __future__ import annotations

import threading
from typing import Any

from engine.index.jvm import jnius

_CLAUSES = 16_384
"""Clauses one query may have; 4,000 characters make at most 4,000 terms."""

_LUCENE = "org/apache/lucene/"


def _type(name: str) -> str:
    return f"L{_LUCENE}{name};"


_QUERY = _type("search/Query")
_TERM = _type("index/Term")
_READER = _type("index/IndexReader")
_CONTEXT = _type("index/LeafReaderContext")
_DIRECTORY = _type("store/Directory")
_ANALYZER = _type("analysis/Analyzer")
_STRING = "Ljava/lang/String;"
_PATH = "Ljava/nio/file/Path;"
_OCCUR = _type("search/BooleanClause$Occur")
_BUILDER = _type("search/BooleanQuery$Builder")
_BITS = _type("util/FixedBitSet")
_CONFIG = "index/IndexWriterConfig"
_INDEXABLE_TYPE = _type("index/IndexableFieldType")
_OPTIONS = _type("index/IndexOptions")

_ABOVE = ("io/", "java/")

_DECLARED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    # Class, below org/apache/lucene unless it begins like _ABOVE: (constructors, {member:
    # signature}); a leading "=" marks a field, "@" a static member.
    "util/Version": ((), {"LATEST": "@=" + _type("util/Version"), "toString": f"(){_STRING}"}),
    "store/Directory": ((), {"close": "()V"}),
    "store/LockFactory": ((), {}),
    "store/NoLockFactory": ((), {"INSTANCE": "@=" + _type("store/NoLockFactory")}),
    "store/MMapDirectory": ((f"({_PATH}{_type('store/LockFactory')})V",), {"close": "()V"}),
    "analysis/Analyzer": ((), {}),
    "analysis/core/WhitespaceAnalyzer": (("()V",), {}),
    "index/IndexOptions": ((), {"DOCS_AND_FREQS": "@=" + _OPTIONS}),
    "index/MergePolicy": ((), {}),
    "index/MergeScheduler": ((), {}),
    "index/LogDocMergePolicy": (("()V",), {"setNoCFSRatio": "(D)V"}),
    "index/SerialMergeScheduler": (("()V",), {}),
    _CONFIG: (
        (f"({_ANALYZER})V",),
        {
            "setMergePolicy": f"({_type('index/MergePolicy')}){_type(_CONFIG)}",
            "setMergeScheduler": f"({_type('index/MergeScheduler')}){_type(_CONFIG)}",
            "setRAMBufferSizeMB": f"(D){_type(_CONFIG)}",
        },
    ),
    "index/IndexWriter": (
        (f"({_DIRECTORY}{_type(_CONFIG)})V",),
        {
            "addDocument": "(Ljava/lang/Iterable;)J",
            "forceMerge": "(I)V",
            "close": "()V",
            "rollback": "()V",
        },
    ),
    "document/Document": (("()V",), {"add": f"({_type('index/IndexableField')})V"}),
    "document/FieldType": (
        ("()V",),
        {"setTokenized": "(Z)V", "setIndexOptions": f"({_OPTIONS})V", "freeze": "()V"},
    ),
    "document/Field": (
        (f"({_STRING}Ljava/lang/CharSequence;{_INDEXABLE_TYPE})V",),
        {"setStringValue": f"({_STRING})V"},
    ),
    "index/DirectoryReader": (
        (),
        {
            "open": f"@({_DIRECTORY}){_type('index/DirectoryReader')}",
            "leaves": "()Ljava/util/List;",
            "maxDoc": "()I",
            "numDocs": "()I",
            "close": "()V",
        },
    ),
    "index/LeafReaderContext": ((), {"reader": f"(){_type('index/LeafReader')}"}),
    "index/LeafReader": (
        (),
        {
            "getDocCount": f"({_STRING})I",
            "getSumTotalTermFreq": f"({_STRING})J",
            "docFreq": f"({_TERM})I",
            "postings": f"({_TERM}I){_type('index/PostingsEnum')}",
            "getNormValues": f"({_STRING}){_type('index/NumericDocValues')}",
        },
    ),
    "io/anserini/analysis/AnalyzerUtils": (
        (),
        {"analyze": f"@({_ANALYZER}{_STRING})Ljava/util/List;"},
    ),
    "java/lang/String": (
        (),
        {"join": f"@(Ljava/lang/CharSequence;Ljava/lang/Iterable;){_STRING}"},
    ),
    "index/PostingsEnum": (
        (),
        {"nextDoc": "()I", "advance": "(I)I", "freq": "()I", "intoBitSet": f"(I{_BITS}I)V"},
    ),
    "index/NumericDocValues": ((), {"nextDoc": "()I", "longValue": "()J"}),
    "index/Term": ((f"({_STRING}{_STRING})V",), {}),
    "search/Query": ((), {}),
    "search/TermQuery": ((f"({_TERM})V",), {}),
    "search/BoostQuery": ((f"({_QUERY}F)V",), {}),
    "search/BooleanClause$Occur": ((), {"SHOULD": "@=" + _OCCUR}),
    "search/BooleanQuery": ((), {}),
    "search/BooleanQuery$Builder": (
        ("()V",),
        {"add": f"({_QUERY}{_OCCUR}){_BUILDER}", "build": f"(){_type('search/BooleanQuery')}"},
    ),
    "search/similarities/Similarity": ((), {}),
    "search/similarities/BM25Similarity": (("(FF)V",), {}),
    "search/ScoreMode": ((), {}),
    "search/IndexSearcher": (
        (f"({_READER})V",),
        {
            "setSimilarity": f"({_type('search/similarities/Similarity')})V",
            "setQueryCache": f"({_type('search/QueryCache')})V",
            "rewrite": f"({_QUERY}){_QUERY}",
            "createWeight": f"({_QUERY}{_type('search/ScoreMode')}F){_type('search/Weight')}",
            "setMaxClauseCount": "@(I)V",
        },
    ),
    "search/Weight": ((), {"bulkScorer": f"({_CONTEXT}){_type('search/BulkScorer')}"}),
    "search/BulkScorer": (
        (),
        {"score": f"({_type('search/LeafCollector')}{_type('util/Bits')}II)I"},
    ),
    "search/LeafCollector": ((), {}),
    "search/TopScoreDocCollectorManager": (
        (f"(I{_type('search/ScoreDoc')}I)V",),
        {"newCollector": f"(){_type('search/TopScoreDocCollector')}"},
    ),
    "search/TopScoreDocCollector": (
        (),
        {
            "heap": "=" + _type("util/TernaryLongHeap"),
            "scoreMode": f"(){_type('search/ScoreMode')}",
            "getLeafCollector": f"({_CONTEXT}){_type('search/LeafCollector')}",
        },
    ),
    "util/TernaryLongHeap": ((), {"heap": "=[J"}),
    "util/Bits": ((), {}),
    "util/FixedBitSet": (
        ("([JI)V", "(I)V"),
        {"intersectionCount": f"@({_BITS}{_BITS})J", "set": "(I)V"},
    ),
}


def _member(bridge: Any, signature: str) -> Any:
    static = signature.startswith("@")
    signature = signature.removeprefix("@")
    if signature.startswith("="):
        kind = bridge.JavaStaticField if static else bridge.JavaField
        return kind(signature.removeprefix("="))
    return (bridge.JavaStaticMethod if static else bridge.JavaMethod)(signature)


def _declare(bridge: Any, name: str) -> Any:
    constructors, members = _DECLARED[name]
    path = name if name.startswith(_ABOVE) else _LUCENE + name
    body: dict[str, Any] = {"__javaclass__": path}
    if constructors:
        body["__javaconstructor__"] = [(signature, False) for signature in constructors]
    body |= {member: _member(bridge, signature) for member, signature in members.items()}
    title = name.rsplit("/", maxsplit=1)[-1].replace("$", "")
    return bridge.MetaJavaClass(title, (bridge.JavaClass,), body)


class Lucene:
    """The declared classes as attributes, named as in Java without package and `$`."""

    def __init__(self, bridge: Any) -> None:
        """Declare every class once and raise the clause limit."""
        for name in _DECLARED:
            declared = _declare(bridge, name)
            setattr(self, declared.__name__, declared)
        self.bridge = bridge
        self.paths = bridge.autoclass("java.nio.file.Paths")
        self.IndexSearcher.setMaxClauseCount(_CLAUSES)

    def __getattr__(self, name: str) -> Any:
        """Say that a class is not declared. Makes attributes dynamic for the type checker."""
        raise AttributeError(f"the Lucene class {name} is not declared in lucene.py")

    @property
    def version(self) -> str:
        """Return Lucene's version, as 10.5.0."""
        latest = self.Version.LATEST
        return str(latest.toString())

    def open_directory(self, path: str) -> Any:
        """Return a memory-mapped directory without lock file; the caller closes it."""
        place = self.paths.get(path)
        return self.MMapDirectory(place, self.NoLockFactory.INSTANCE)


_lock = threading.Lock()
_declared: list[Lucene] = []


def lucene() -> Lucene:
    """Return the declared classes of the running JVM.

    Raises:
        JavaError: the JVM is not running, or was started before a fork.
    """
    bridge = jnius()
    if not _declared:
        with _lock:
            if not _declared:
                _declared.append(Lucene(bridge))
    return _declared[0]
