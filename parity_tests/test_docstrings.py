"""Docstrings of public functions: what they raise, and the shapes or types of the arrays that they take and return."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = [
    f"common/{name}"
    for name in (
        "base",
        "checkpoint",
        "commands",
        "data",
        "diagnosis",
        "execution",
        "external",
        "parity",
        "planning",
        "recipes",
        "record",
        "reference",
        "report",
        "scaling",
        "spec",
        "state",
        "study",
    )
]
FOLDERS += [
    f"{side}_impl/{name}" for side in ("tf", "torch") for name in ("external", "layers", "optimizers")
]
# Names of annotations that stand for arrays.
ARRAYS = {"NDArray", "Array", "Ids", "Column", "Curve", "Words"}
SHAPES = re.compile(
    r"\([^()]*,[^()]*\)|\[[^\]]*\]|shape|dtype|float64|float32|int64|uint64|bool|scalar|number|words?\b"
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    """Public functions of a module, and public methods of its public classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(node)


def raised(function: Function) -> set[str]:
    """Names of the errors that a function itself raises; none of what nested functions raise."""
    found, left = set(), list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found.add(ast.unparse(node.exc.func).rpartition(".")[2].replace("error", "SpecError"))
        left += ast.iter_child_nodes(node)
    return found - {"NotImplementedError", "AssertionError"}


def names_arrays(function: Function) -> bool:
    """Whether an annotation of a function names an array."""
    given = [*function.args.args, *function.args.kwonlyargs, function.args.vararg]
    annotations = [each.annotation for each in given if each and each.annotation]
    annotations += [function.returns] if function.returns else []
    words = {word for each in annotations for word in re.findall(r"\w+", ast.unparse(each))}
    return bool(words & ARRAYS)


def missing(source: str) -> list[str]:
    """What the docstrings of a module's public functions leave out, a line each."""
    found = []
    for function in functions(ast.parse(source)):
        text = ast.get_docstring(function) or ""
        overrides = not text and function.args.args and function.args.args[0].arg == "self"
        if overrides:
            continue  # the method of the base class has the docstring
        if raised(function) and not re.search(r"\b[Rr]aises?\b", text):
            found.append(f"{function.name}: says not that it raises {', '.join(sorted(raised(function)))}")
        if names_arrays(function) and not SHAPES.search(text):
            found.append(f"{function.name}: says nothing of the shapes or types of its arrays")
    return found


def modules() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_public_functions_state_their_contract(path: Path) -> None:
    assert missing(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('def f() -> None:\n    """Return."""\n    raise ValueError("x")\n', 1),
        ('def f() -> None:\n    """Return; raise ValueError always."""\n    raise ValueError("x")\n', 0),
        ('def f() -> None:\n    """Return."""\n    def g() -> None:\n        raise ValueError("x")\n', 0),
        ('def f(x: NDArray[Any]) -> None:\n    """Return the sum."""\n', 1),
        ('def f(x: NDArray[Any]) -> None:\n    """Return the sum over the batch of x (batch, ...)."""\n', 0),
        ('def _f(x: NDArray[Any]) -> None:\n    """Return the sum."""\n', 0),
        ('class A:\n    def f(self) -> Array:\n        """Return it."""\n        raise ValueError("x")\n', 2),
    ],
)
def test_what_a_docstring_leaves_out_is_seen(source: str, lines: int) -> None:
    assert len(missing(source)) == lines


def test_functions_are_found() -> None:
    assert len(modules()) > 100
    assert sum(1 for path in modules() for _ in functions(ast.parse(path.read_text(encoding="utf-8")))) > 500
