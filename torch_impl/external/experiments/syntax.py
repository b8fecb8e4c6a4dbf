"""Expressions of a torch program, read and made."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any

_NO_TENSORS = ("torch", "F", "nn", "np", "math", "self", "super")
# Functions that give no tensor.
NUMBERS = ("int", "float", "len", "range", "list", "tuple")
_MODULES = ("torch", "F", "nn", "math", "np")


def code(template: str, **parts: ast.expr) -> ast.expr:
    """An expression as it is written, with other expressions in place of some of its names."""
    return placed(_parsed(template), parts)  # type: ignore[no-any-return]


def placed(node: Any, parts: dict[str, ast.expr]) -> Any:
    """The same with other expressions in place of some of its names."""
    return _Placed(parts).visit(copied(node))


@cache
def _parsed(template: str) -> ast.expr:
    return ast.parse(template, mode="eval").body


class _Placed(ast.NodeTransformer):
    def __init__(self, parts: dict[str, ast.expr]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._parts.get(node.id, node)


def copied(node: Any) -> Any:
    """The same expression of other nodes."""
    if isinstance(node, list):
        return [copied(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    return changed(node, **{name: copied(value) for name, value in ast.iter_fields(node)})


def replaced(node: Any, old: ast.AST, new: ast.AST) -> Any:
    """The same with another part in place of one."""
    if node is old:
        return new
    if isinstance(node, list):
        return [replaced(each, old, new) for each in node]
    if not isinstance(node, ast.AST):
        return node
    return changed(node, **{name: replaced(value, old, new) for name, value in ast.iter_fields(node)})


def changed(node: ast.AST, **fields: Any) -> Any:
    """A node with other fields."""
    other = copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def is_self(node: ast.expr) -> bool:
    """Whether an expression is the module that a method is of."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_value(node: ast.expr) -> bool:
    """Whether it may be a tensor: no module, and nothing that is written to."""
    name = node.id if isinstance(node, ast.Name) else ""
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and name not in (*_NO_TENSORS, *NUMBERS)


def number(value: float) -> ast.expr:
    """A number as it is written."""
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def value_of(node: ast.AST | None) -> Any:
    """The number, word or truth that an expression writes; None where it is no such."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = value_of(node.operand)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return node.value if isinstance(node, ast.Constant) else None


def called(node: ast.AST) -> str:
    """The name of the function or method that is called; '' where none is."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def receiver(call: ast.Call) -> ast.expr | None:
    """What a method is called of; None of a function, as of a module, and of what a model calls by `self`, as its layers."""
    function = call.func
    if not isinstance(function, ast.Attribute) or is_self(function.value):
        return None
    root = whose = function.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return None if isinstance(root, ast.Name) and root.id in _MODULES else whose


def operand(call: ast.Call) -> ast.expr | None:
    """What a call changes: what its method is of, or its first argument."""
    return receiver(call) or next(iter(call.args), None)


def given(call: ast.Call) -> list[ast.expr]:
    """The arguments behind the operand."""
    return call.args if receiver(call) is not None else call.args[1:]


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """An argument by its name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def applied(call: ast.Call, to: ast.expr) -> ast.Call:
    """A call with another operand."""
    if receiver(call) is not None:
        return changed(call, func=changed(call.func, value=to))  # type: ignore[no-any-return]
    return changed(call, args=[to, *call.args[1:]])  # type: ignore[no-any-return]


def renamed(call: ast.Call, name: str) -> ast.Call:
    """A call of another function, of the same module or tensor."""
    function = call.func
    other = (
        changed(function, attr=name) if isinstance(function, ast.Attribute) else ast.Name(name, ast.Load())
    )
    return changed(call, func=other)  # type: ignore[no-any-return]


def exchanged(items: Sequence[Any], one: int, other: int) -> list[Any]:
    """The same with two exchanged."""
    found = list(items)
    found[one], found[other] = found[other], found[one]
    return found
