"""What one could have meant to write: small edits of an expression or statement of a torch program, the likeliest first."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

# Functions that one is taken for another of, by name, as functions or as methods.
_LIKE: tuple[tuple[str, ...], ...] = (
    ("mean", "sum", "amax", "amin", "logsumexp", "median", "prod"),
    ("softmax", "log_softmax", "sigmoid", "logsigmoid", "tanh"),
    ("relu", "leaky_relu", "gelu", "silu", "elu", "selu", "softplus", "relu6", "hardtanh", "tanh"),
    ("exp", "expm1", "exp2"),
    ("log", "log1p", "log2", "log10"),
    ("abs", "square", "sqrt"),
    ("floor", "round", "ceil", "trunc"),
    ("argmax", "argmin"),
    ("max", "min"),
    ("maximum", "minimum"),
    ("sin", "cos"),
    ("std", "var"),
    ("triu", "tril"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("bisect_left", "bisect_right", "bisect"),
    ("cumsum", "cumprod"),
    ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    ("max_pool1d", "avg_pool1d"),
    ("max_pool2d", "avg_pool2d"),
    ("hann_window", "hamming_window", "blackman_window"),
    ("fliplr", "flipud"),
    ("any", "all"),
    ("gt", "ge"),
    ("lt", "le"),
    ("eq", "ne"),
)
# Words that a setting may be instead.
_WORDS: tuple[tuple[str, ...], ...] = (
    ("reflect", "replicate", "circular", "constant", "zeros"),
    ("zeros", "border", "reflection"),
    ("mean", "sum", "batchmean"),
    ("nearest", "bilinear", "bicubic", "nearest-exact"),
    ("ij", "xy"),
    ("floor", "trunc"),
    ("tanh", "none"),
)
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.GtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.LtE, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_COMPUTED: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.FloorDiv: (ast.Div,),
}
# Names of a scope that are tried in place of another, and of numbers.
_MOST_NAMES = 16
# Parts of the names of masks.
_OF_MASKS = ("mask", "valid", "pad", "keep")
# Statements that one is put behind.
_FARTHEST = 3
_CLIPS = ("clamp", "clamp_min", "clip", "maximum")
_WINDOWS = ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window")


@dataclass(frozen=True)
class Known:
    """What could stand elsewhere in a function: values, the nearest first, and layers of `self` that it calls."""

    values: Sequence[ast.expr]
    layers: Sequence[ast.expr]


@dataclass(frozen=True)
class Edit:
    """Another expression or statement in place of one; kind: what it is, as causes are named.

    holder, field, place: where the node stands, place None where it is the field itself.
    """

    kind: str
    holder: ast.AST
    field: str
    place: int | None
    old: Any
    new: Any

    def make(self) -> None:
        """Put the new one there."""
        self._put(self.new)

    def undo(self) -> None:
        """Put the old one back."""
        self._put(self.old)

    def _put(self, node: Any) -> None:
        if self.place is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.place] = node


def edits_of(holder: ast.AST, field: str, place: int, known: Known) -> list[Edit]:
    """Return edits of a statement, without the statements in it, the likeliest first.

    Args:
        holder, field, place: where it stands.
        known: there.
    """
    found, block = list[Edit](), getattr(holder, field)
    statement = block[place]
    for owner, name, number, node in _expressions(statement):
        for kind, new in _instead(node, known):
            found.append(Edit(kind, owner, name, number, node, ast.copy_location(new, node)))
    found += [Edit(kind, holder, field, None, block, instead) for kind, instead in _statements(block, place)]
    return sorted(found, key=lambda edit: _ORDER.index(edit.kind))


# The likeliest first; names and what is left out last, since they are many, or say little.
_ORDER = (
    *("setting", "order", "arrangement", "part", "argument", "operation", "divisor", "sequence", "number"),
    *("kept", "too_much", "left_out", "stopped", "through", "operand"),
)


def _expressions(statement: ast.stmt) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """Each expression of a statement, the outermost first, with what holds it; none of the statements in it, nor what is called."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        holder = waiting.pop(0)
        for field, value in ast.iter_fields(holder):
            if isinstance(holder, ast.stmt) and field not in ("value", "test", "iter"):
                continue
            called = isinstance(holder, ast.Call) and field == "func"
            # Of conditions only comparisons of numbers.
            if field == "test" and not (isinstance(value, ast.Compare) and type(value.ops[0]) in _COMPARED):
                continue
            for place, each in enumerate(value) if isinstance(value, list) else ((None, value),):
                if isinstance(each, ast.expr) and not called:
                    yield holder, field, place, each
                if isinstance(each, ast.expr | ast.keyword | ast.comprehension):
                    waiting.append(each)


def _call(name: str, *given: ast.expr, of: ast.expr | None = None, **named: ast.expr) -> ast.Call:
    function: ast.expr = ast.Name(name, ast.Load()) if of is None else ast.Attribute(of, name, ast.Load())
    return ast.Call(function, list(given), [ast.keyword(key, value) for key, value in named.items()])


def _number(value: float) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def value_of(node: ast.AST | None) -> Any:
    """The number, word or truth that an expression writes; None where it is no such."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = value_of(node.operand)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return node.value if isinstance(node, ast.Constant) else None


def _named(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _of(call: ast.Call) -> ast.expr | None:
    """What a method is called of; None of a function, as of a module."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return None
    whose = function.value
    return None if isinstance(whose, ast.Name) and whose.id in ("torch", "F", "nn", "math", "np") else whose


def _operand(call: ast.Call) -> ast.expr | None:
    """What a call changes: what its method is of, or its first argument."""
    return _of(call) or next(iter(call.args), None)


def _with(node: ast.AST, **fields: Any) -> Any:
    other = copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _swapped(items: Sequence[Any], one: int, other: int) -> list[Any]:
    found = list(items)
    found[one], found[other] = found[other], found[one]
    return found


def _instead(node: ast.expr, known: Known) -> Iterator[tuple[str, ast.expr]]:
    """(kind, expression) of what may stand in place of one."""
    if isinstance(node, ast.Constant):
        yield from _of_constant(node)
    elif isinstance(node, ast.UnaryOp):
        yield "kept" if isinstance(node.op, ast.Invert | ast.Not) else "operation", node.operand
    elif isinstance(node, ast.BinOp):
        yield from _of_operator(node)
    elif isinstance(node, ast.Compare):
        for other in _COMPARED.get(type(node.ops[0]), ()):
            yield "operation", _with(node, ops=[other(), *node.ops[1:]])
    elif isinstance(node, ast.Subscript):
        yield from _of_part(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load):
        yield from _orders(node, "elts")
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and _is_value(node):
        yield "stopped", _call("detach", of=node)
    if isinstance(node, ast.Name) and any(word in node.id for word in _OF_MASKS):
        yield "kept", _call("logical_not", of=node)
        yield "kept", ast.BinOp(ast.Constant(1), ast.Sub(), node)
    if isinstance(node, ast.Name | ast.Attribute) and _is_value(node):
        text = ast.dump(node)
        others = (each for each in known.values[:_MOST_NAMES] if ast.dump(each) != text)
        yield from (("operand", each) for each in others)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        others = (each for each in known.layers[:_MOST_NAMES] if ast.dump(each) != ast.dump(node.func))
        if any(ast.dump(each) == ast.dump(node.func) for each in known.layers):
            yield from (("operand", _with(node, func=each)) for each in others)


def _is_value(node: ast.expr) -> bool:
    """Whether it may be a tensor: no module, and nothing that is written to."""
    name = node.id if isinstance(node, ast.Name) else ""
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and name not in (
        *("torch", "F", "nn", "np", "math", "self", "super", "range", "len", "int", "float", "print"),
    )


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.expr]]:
    value = node.value
    if isinstance(value, bool):
        yield "setting", ast.Constant(not value)
    elif isinstance(value, int):
        others = (value + 1, value - 1, -value, 0, 1, -1, 2, 2 * value, value // 2, value - 2, value + 2)
        yield from (("number", _number(each)) for each in dict.fromkeys(others) if each != value)
    elif isinstance(value, float) and value:
        others_ = (1 - value, 2 * value, value / 2, -value, 10 * value, value / 10, 1 / value)
        more = (value**2, abs(value) ** 0.5, 0.0, 1.0)
        yield from (("number", _number(each)) for each in dict.fromkeys((*others_, *more)) if each != value)
    elif isinstance(value, str):
        for words in _WORDS:
            if value in words:
                yield from (("setting", ast.Constant(other)) for other in words if other != value)
        if "->" in value:
            yield from (("arrangement", ast.Constant(each)) for each in _einsums(value))


def _einsums(equation: str) -> Iterator[str]:
    """Equations of einsum with two letters of one operand exchanged, or of the result."""
    operands, result = equation.replace(" ", "").split("->")
    parts = [*operands.split(","), result]
    for place, part in enumerate(parts):
        for one, other in itertools.combinations(range(len(part)), 2):
            turned = "".join(_swapped(part, one, other))
            if "..." not in part and turned != part:
                each = [*parts[:place], turned, *parts[place + 1 :]]
                yield ",".join(each[:-1]) + "->" + each[-1]


def _is_small(node: ast.expr) -> bool:
    value = value_of(node)
    return isinstance(value, float) and 0 < value < 1e-2


def _of_operator(node: ast.BinOp) -> Iterator[tuple[str, ast.expr]]:
    left, operator, right = node.left, node.op, node.right
    if isinstance(operator, ast.Sub | ast.Div | ast.MatMult | ast.Pow | ast.FloorDiv):
        yield "order", _with(node, left=right, right=left)
    for other in _COMPUTED.get(type(operator), ()):
        yield "operation", _with(node, op=other())
    yield from _regrouped(left, operator, right)
    yield from _averaged_apart(node)
    if isinstance(operator, ast.Sub):
        yield from _distributed(left, right)
    if isinstance(operator, ast.Mult) and isinstance(right, ast.BinOp | ast.Name | ast.Attribute):
        yield "kept", _with(node, right=ast.BinOp(ast.Constant(1), ast.Sub(), right))
        yield "kept", _with(node, left=ast.BinOp(ast.Constant(1), ast.Sub(), left))
    if isinstance(operator, ast.Sub) and value_of(left) == 1:
        yield "kept", right
    if isinstance(operator, ast.Div | ast.Add):
        # A bound for a number that is added, within a root, a logarithm or a quotient.
        if isinstance(operator, ast.Add) and _is_small(right):
            yield "operation", _call("clamp", of=left, min=right)
        if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add) and _is_small(right.right):
            yield "operation", _with(node, right=_call("clamp", of=right.left, min=right.right))
    yield "too_much", left
    if not isinstance(operator, ast.Div | ast.Pow | ast.FloorDiv):
        yield "too_much", right


def _regrouped(left: ast.expr, operator: ast.operator, right: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The same operands with the brackets elsewhere."""
    if isinstance(left, ast.BinOp) and type(left.op) is not type(operator):
        yield "order", _with(left, right=ast.BinOp(left.right, operator, right))
    if isinstance(right, ast.BinOp) and type(right.op) is not type(operator):
        yield "order", _with(right, left=ast.BinOp(left, operator, right.left))


def _distributed(left: ast.expr, right: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """f(a) - f(b) as f(a - b)."""
    if not (isinstance(left, ast.Call) and isinstance(right, ast.Call) and _named(left) == _named(right)):
        return
    apart = [_operand(each) for each in (left, right)]
    if apart[0] is not None and apart[1] is not None:
        yield "sequence", _applied(left, ast.BinOp(apart[0], ast.Sub(), apart[1]))


def _applied(call: ast.Call, to: ast.expr) -> ast.Call:
    """A call with another operand."""
    if _of(call) is not None:
        return _with(call, func=_with(call.func, value=to))  # type: ignore[no-any-return]
    return _with(call, args=[to, *call.args[1:]])  # type: ignore[no-any-return]


def _bare(node: ast.expr) -> tuple[ast.expr, Callable[[ast.expr], ast.expr]]:
    """An expression without a bound or a small number around it, and what puts these around another one."""
    if isinstance(node, ast.Call) and _named(node) in _CLIPS and _of(node) is not None:
        return _of(node) or node, lambda other: _applied(node, other)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and value_of(node.right) is not None:
        return node.left, lambda other: _with(node, left=other)
    return node, lambda other: other


def _is_reduced(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _named(node) in ("sum", "mean")


def _averaged_apart(node: ast.BinOp) -> Iterator[tuple[str, ast.expr]]:
    """A quotient of two sums over all as the mean of each sample's quotient, or of a sum and a number of elements as a mean."""
    if not isinstance(node.op, ast.Div) or not _is_reduced(node.left):
        return
    bare, around = _bare(node.right)
    assert isinstance(node.left, ast.Call)
    yield "divisor", _with(node.left, func=_renamed(node.left.func, "mean"))
    if _is_reduced(bare) and not _axes(node.left) and isinstance(bare, ast.Call) and not _axes(bare):
        for start in (1, 2):
            each = [_by_samples(call, start) for call in (node.left, bare)]
            quotient = ast.BinOp(each[0], ast.Div(), around(each[1]))
            yield "divisor", _call("mean", of=quotient)


def _renamed(function: ast.expr, name: str) -> ast.expr:
    if isinstance(function, ast.Attribute):
        return _with(function, attr=name)  # type: ignore[no-any-return]
    return ast.Name(name, ast.Load())


def _axes(call: ast.Call) -> list[ast.expr]:
    """The axes that a reduction is given; none where it is over all."""
    given = call.args if _of(call) is not None else call.args[1:]
    return [*given[:1], *(each.value for each in call.keywords if each.arg in ("dim", "axis"))]


def _by_samples(call: ast.Call, start: int) -> ast.expr:
    """A reduction over all as one of each sample."""
    flat = _call("flatten", ast.Constant(start), of=_operand(call) or call)
    return _call(_named(call), ast.Constant(-1), of=flat)


def _of_part(node: ast.Subscript) -> Iterator[tuple[str, ast.expr]]:
    several = isinstance(node.slice, ast.Tuple)
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    for place, part in enumerate(parts):
        for other in _parts(part):
            changed = [*parts[:place], other, *parts[place + 1 :]]
            yield "part", _with(node, slice=ast.Tuple(changed, ast.Load()) if several else changed[0])
    if several:
        yield from (
            ("part", _with(node, slice=_with(node.slice, elts=_swapped(parts, place, place + 1))))
            for place in range(len(parts) - 1)
        )
    yield "too_much", node.value


def _parts(part: ast.expr) -> Iterator[ast.expr]:
    if not isinstance(part, ast.Slice):
        value = value_of(part)
        if isinstance(value, int) and not isinstance(value, bool):
            others = dict.fromkeys((value + 1, value - 1, -1, 0))
            yield from (_number(each) for each in others if each != value)
        return
    lower, upper, step = part.lower, part.upper, part.step
    first, last = value_of(lower), value_of(upper)
    # What one leaves at the end is left at the start, and the other way round.
    if lower is None and isinstance(last, int):
        yield ast.Slice(_number(-last), None, step) if last < 0 else ast.Slice(upper, None, step)
        yield ast.Slice(_number(-last), None, step)
    if upper is None and isinstance(first, int):
        yield ast.Slice(None, _number(-first), step)
        yield ast.Slice(None, lower, step)
    if upper is None and lower is not None:
        yield ast.Slice(None, lower, step)
    if lower is None and upper is not None:
        yield ast.Slice(upper, None, step)
    if value_of(step) == 2:
        yield ast.Slice(None if lower is not None else ast.Constant(1), upper, step)
    if lower is not None or upper is not None or step is not None:
        yield ast.Slice(None, None, None)


def _orders(node: ast.expr, field: str) -> Iterator[tuple[str, ast.expr]]:
    """Elements in another order: two exchanged, or all reversed."""
    items = getattr(node, field)
    if any(isinstance(each, ast.Starred) for each in items):
        return
    for one, other in itertools.combinations(range(len(items)), 2):
        if ast.dump(items[one]) != ast.dump(items[other]):
            yield "order", _with(node, **{field: _swapped(items, one, other)})
    if len(items) > 3:
        yield "order", _with(node, **{field: items[::-1]})


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name, operand = _named(node), _operand(node)
    for group in _LIKE:
        if name in group:
            for other in group:
                if other != name:
                    yield "operation", _with(node, func=_renamed(node.func, other))
    yield from _repeated(node, name)
    yield from _transposed(node, name)
    yield from _reduced(node, name)
    if name in _WINDOWS and not any(each.arg == "periodic" for each in node.keywords):
        periodic = ast.keyword("periodic", ast.Constant(False))
        yield "setting", _with(node, keywords=[*node.keywords, periodic])
    for place, _keyword in enumerate(node.keywords):
        rest = [*node.keywords[:place], *node.keywords[place + 1 :]]
        yield "argument", _with(node, keywords=rest)
    yield from _orders(node, "args")
    if name in ("detach", "clone") and operand is not None:
        yield "through", operand
    elif (
        operand is not None
        and name not in ("int", "float", "len", "range", "list", "tuple")
        and _is_value(operand)
    ):
        yield "too_much", operand
    if name in ("masked_fill", "where") and node.args:
        condition = node.args[0]
        inverse = ast.UnaryOp(ast.Invert(), condition)
        yield "kept", _with(node, args=[inverse, *node.args[1:]])


def _repeated(node: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    """Elements repeated one by one for a tensor that is repeated whole, and the other way round."""
    of = _of(node)
    given = node.args if of is not None else node.args[1:]
    operand = of or (node.args[0] if node.args else None)
    if operand is None:
        return
    if name in ("repeat", "tile"):
        sizes = (
            list(given[0].elts) if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List) else given
        )
        for place, size in enumerate(sizes):
            if value_of(size) != 1:
                axis = _number(place - len(sizes))
                yield "arrangement", _call("repeat_interleave", size, of=operand, dim=axis)
    if name == "repeat_interleave" and given:
        axis_of = next((each.value for each in node.keywords if each.arg == "dim"), None)
        axis = axis_of or (given[1] if len(given) > 1 else ast.Constant(0))
        times = ast.BinOp(ast.List([operand], ast.Load()), ast.Mult(), given[0])
        torch = ast.Attribute(ast.Name("torch", ast.Load()), "cat", ast.Load())
        yield "arrangement", ast.Call(torch, [times], [ast.keyword("dim", axis)])


_VIEWS = ("view", "reshape", "unflatten")


def _transposed(node: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    """A view of sizes in another order and a transposition, for one of them, and the other way round."""
    of = _of(node)
    if of is None:
        return
    if name in ("transpose", "swapaxes") and isinstance(of, ast.Call) and _named(of) in _VIEWS:
        axes = [value_of(each) for each in node.args]
        if len(axes) == 2 and all(
            isinstance(each, int) and -len(of.args) <= each < len(of.args) for each in axes
        ):
            yield "arrangement", _with(of, args=_swapped(of.args, axes[0], axes[1]))
    if name in ("view", "reshape") and len(node.args) > 1:
        for place in range(len(node.args) - 1):
            made = _with(node, args=_swapped(node.args, place, place + 1))
            axes_ = ast.Constant(place), ast.Constant(place + 1)
            yield "arrangement", _call("transpose", *axes_, of=made)
    if name in (*_VIEWS, "flatten"):
        for axes_ in ((1, 2), (0, 1), (2, 3), (-1, -2), (1, 3)):
            turned = _call("transpose", *map(_number, axes_), of=of)
            function = _with(node.func, value=turned, attr="reshape" if name == "view" else name)
            yield "arrangement", _with(node, func=function)


def _reduced(node: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    """Means and sums over other elements."""
    operand = _operand(node)
    if name not in ("mean", "sum") or operand is None:
        return
    if _axes(node):
        if name == "mean" and isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Mult):
            for weights in (operand.right, operand.left):
                totals = [
                    _applied(_with(node, func=_renamed(node.func, "sum")), each)
                    for each in (operand, weights)
                ]
                yield "divisor", ast.BinOp(totals[0], ast.Div(), totals[1])
        return
    if name == "mean":
        inner = operand
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
            for weights in (inner.right, inner.left):
                yield "divisor", ast.BinOp(_call("sum", of=inner), ast.Div(), _call("sum", of=weights))
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div) and _is_reduced(inner.left):
            # The mean of each sample's quotient as one quotient of all.
            bare, around = _bare(inner.right)
            if isinstance(bare, ast.Call) and _is_reduced(bare) and isinstance(inner.left, ast.Call):
                totals = [_call(_named(each), of=_operand(each) or each) for each in (inner.left, bare)]
                yield "divisor", ast.BinOp(totals[0], ast.Div(), around(totals[1]))
        if isinstance(inner, ast.Call) and _is_reduced(inner) and _axes(inner):
            other = "mean" if _named(inner) == "sum" else "sum"
            yield (
                "divisor",
                _with(node, func=_with(node.func, value=_with(inner, func=_renamed(inner.func, other))))
                if _of(node) is not None
                else node,
            )
        if isinstance(inner, ast.Subscript) and not isinstance(
            inner.slice, ast.Slice | ast.Constant | ast.Tuple
        ):
            # Of what a mask chooses in all samples each sample's mean.
            kept = ast.BinOp(inner.value, ast.Mult(), inner.slice)
            for start in (1, 2):
                each = [_by_samples(_call("sum", of=of), start) for of in (kept, inner.slice)]
                for bound in (each[1], _call("clamp", of=each[1], min=ast.Constant(1))):
                    yield "divisor", _call("mean", of=ast.BinOp(each[0], ast.Div(), bound))
        for axis in (-1, 1):
            yield "divisor", _call("mean", of=_call("sum", _number(axis), of=operand))
        yield (
            "divisor",
            _call(
                "mean", of=_call("sum", ast.Constant(-1), of=_call("flatten", ast.Constant(1), of=operand))
            ),
        )


def _is_plain(statement: ast.stmt) -> bool:
    """Whether a statement may stand elsewhere: it gives nothing back."""
    inner = (ast.Return, ast.Continue, ast.Break, ast.FunctionDef, ast.For, ast.While)
    return not any(isinstance(each, inner) for each in ast.walk(statement))


def _statements(around: Sequence[ast.stmt], place: int) -> Iterator[tuple[str, list[ast.stmt]]]:
    """(kind, statements) of what may stand in place of a block's because of one of them."""
    statement, before, behind = around[place], list(around[:place]), list(around[place + 1 :])
    instead: list[tuple[str, ast.stmt]] = []
    if isinstance(statement, ast.AugAssign):
        others = _COMPUTED.get(type(statement.op), ())
        instead += [("operation", _with(statement, op=other())) for other in others]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(target, ast.Tuple):
        instead += [("order", _with(statement, targets=[other])) for _, other in _orders(target, "elts")]
    yield from ((kind, [*before, other, *behind]) for kind, other in instead)
    for later in range(1, _FARTHEST + 1):
        passed = behind[:later]
        if len(passed) < later or not all(map(_is_plain, [statement, *passed])):
            break
        yield "sequence", [*before, *passed, statement, *behind[later:]]
        if later > 1:
            yield "sequence", [*before, passed[-1], statement, *passed[:-1], *behind[later:]]
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
        yield "too_much", [*before, ast.copy_location(ast.Pass(), statement), *behind]
