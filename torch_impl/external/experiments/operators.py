"""Edits of an operation of two: another operator, operands or brackets in another order, another axis, one of them alone."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from parity.torch_impl.external.experiments.syntax import (
    applied,
    called,
    changed,
    code,
    exchanged,
    given,
    is_value,
    operand,
    value_of,
)

Instead = Iterator[tuple[str, ast.expr]]
COMPUTED: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.FloorDiv: (ast.Div,),
}
_EXCHANGEABLE = (ast.Sub, ast.Div, ast.MatMult, ast.Pow, ast.FloorDiv)
# Between operands of other shapes the axes that are not there are the first ones.
BROADCAST = ("V.unsqueeze(-1)", "V.unsqueeze(0)", "V.unsqueeze(1)", "V.squeeze(-1)")
# A number that only keeps another one from zero.
_SMALL = 1e-2


def of_operator(node: ast.BinOp) -> Instead:
    """What may stand in place of an operation of two: another one, operands or brackets in another order, one alone."""
    left, operator, right = node.left, node.op, node.right
    if isinstance(operator, _EXCHANGEABLE):
        yield "order", changed(node, left=right, right=left)
    for other in COMPUTED.get(type(operator), ()):
        yield "operation", changed(node, op=other())
    # The same operands with the brackets elsewhere.
    if isinstance(left, ast.BinOp) and type(left.op) is not type(operator):
        yield "order", changed(left, right=ast.BinOp(left.right, operator, right))
        yield "order", changed(left, left=ast.BinOp(left.left, operator, right))
    if isinstance(right, ast.BinOp) and type(right.op) is not type(operator):
        yield "order", changed(right, left=ast.BinOp(left, operator, right.left))
        yield "order", changed(right, right=ast.BinOp(left, operator, right.right))
    if isinstance(operator, ast.Add) and isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        # The last of a sum within the brackets of the one before it.
        last = left.right
        if isinstance(last, ast.BinOp) and isinstance(last.op, ast.Div | ast.Mult):
            yield "order", changed(left, right=changed(last, left=ast.BinOp(last.left, operator, right)))
    if isinstance(operator, ast.Sub):
        yield from _distributed(left, right)
        if value_of(left) == 1:
            yield "kept", right
    if isinstance(operator, ast.Mult):
        yield from (("kept", code(each, A=left, B=right)) for each in ("A * (1 - B)", "(1 - A) * B"))
    if isinstance(operator, ast.Mult | ast.MatMult):
        yield from _exchanged_functions(node)
    for side in ("left", "right"):
        of = getattr(node, side)
        # What is made of one, of both.
        if isinstance(of, ast.Call) and (inner := operand(of)) is not None and is_value(inner):
            yield "sequence", applied(of, changed(node, **{side: inner}))
        if is_value(of) and isinstance(of, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            yield from (("broadcast", changed(node, **{side: code(each, V=of)})) for each in BROADCAST)
    yield "too_much", left
    # A bound for a number that is added.
    if isinstance(operator, ast.Add) and _is_small(right):
        yield "operation", code("V.clamp(min=E)", V=left, E=right)
    if not isinstance(operator, ast.Div | ast.Pow | ast.FloorDiv):
        yield "too_much", right


def _exchanged_functions(node: ast.BinOp) -> Instead:
    """f(a) * b as a * f(b), and the other way round."""
    for one, other in (("left", "right"), ("right", "left")):
        call, of = getattr(node, one), getattr(node, other)
        bare = operand(call) if isinstance(call, ast.Call) else None
        if bare is not None and not given(call) and not call.keywords:
            yield "order", changed(node, **{one: bare, other: applied(call, of)})


def _is_small(node: ast.expr) -> bool:
    value = value_of(node)
    return isinstance(value, float) and 0 < value < _SMALL


def _distributed(left: ast.expr, right: ast.expr) -> Instead:
    """f(a) - f(b) as f(a - b)."""
    if isinstance(left, ast.Call) and isinstance(right, ast.Call) and called(left) == called(right):
        apart = operand(left), operand(right)
        if apart[0] is not None and apart[1] is not None:
            yield "sequence", applied(left, ast.BinOp(apart[0], ast.Sub(), apart[1]))


def in_other_orders(node: ast.expr, field: str) -> Instead:
    """Two elements exchanged, or all reversed."""
    items = getattr(node, field)
    if any(isinstance(each, ast.Starred) for each in items):
        return
    for one, other in itertools.combinations(range(len(items)), 2):
        if ast.dump(items[one]) != ast.dump(items[other]):
            yield "order", changed(node, **{field: exchanged(items, one, other)})
    if len(items) > 3:
        yield "order", changed(node, **{field: items[::-1]})
