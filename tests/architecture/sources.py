"""Our own sources, parsed: what the architecture tests read. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "serve", "jobs")


@dataclass(frozen=True, slots=True)
class Source:
    """One module. `path` is relative to the repository, with forward slashes."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """Return the dotted name under which it is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Return the modules of some top-level folders, ordered by path."""
    found = []
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            name = path.relative_to(REPOSITORY).as_posix()
            found.append(Source(name, text, ast.parse(text, name)))
    return tuple(found)


def called_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the dotted name and line of every call: `a.b.remote` for `a.b.remote(x)`.

    A callee that is not a plain chain of names keeps its last attribute: `?.remote`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node.lineno


def dotted(node: ast.expr) -> str:
    """Return the dotted name of an expression, `?` standing for what is not a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node that runs when a module is imported: function bodies are left out.

    Decorators and default values run at import, and are yielded; so is a class body. What stands
    under `if __name__ == "__main__"` or `if TYPE_CHECKING` is not.
    """
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).startswith(
            ("__name__ ==", "TYPE_CHECKING")
        ):
            continue
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if not isinstance(node, ast.Lambda):
                waiting.extend(node.decorator_list)
            waiting.extend(node.args.defaults)
            waiting.extend(default for default in node.args.kw_defaults if default is not None)
            continue
        waiting.extend(ast.iter_child_nodes(node))
