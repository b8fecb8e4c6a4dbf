"""What one could have meant to write: small edits of a statement of a torch program, the likeliest first."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from parity.torch_impl.external.experiments.averages import other_averages
from parity.torch_impl.external.experiments.blocks import blocks
from parity.torch_impl.external.experiments.keywords import other_settings, with_numbers
from parity.torch_impl.external.experiments.operators import BROADCAST, Instead, in_other_orders, of_operator
from parity.torch_impl.external.experiments.syntax import (
    NUMBERS,
    applied,
    argument,
    called,
    changed,
    code,
    exchanged,
    given,
    is_value,
    number,
    operand,
    placed,
    receiver,
    renamed,
    value_of,
)

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
    ("fmod", "remainder"),
    ("logical_and", "logical_or"),
    ("gt", "ge"),
    ("lt", "le"),
    ("eq", "ne"),
)
# Methods of a tensor alone.
_OF_ONE = [
    "relu",
    "tanh",
    "sigmoid",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "abs",
    "square",
    "log1p",
    "expm1",
    "neg",
    "sign",
    "round",
    "floor",
    "sin",
    "cos",
]
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
_VIEWS = ("view", "reshape", "unflatten")
_TURNED = ((1, 2), (0, 1), (2, 3), (-1, -2), (1, 3))
# Parts of the names of masks.
_OF_MASKS = ("mask", "valid", "pad", "keep", "observed", "present", "seen", "known")
# Where a mask is left out.
_MASKED = ("V * M", "V * M.unsqueeze(-1)")
# Names of a scope that are tried in place of another.
_MOST_NAMES = 16
# Axes of a tensor V.
_BUT_FIRST, _BUT_LAST = "tuple(range(1, V.ndim))", "tuple(range(V.ndim - 1))"
# Masks that a mean is taken over.
_MOST_MASKS = 3
# The likeliest first; names and what is too much last, since they are many, or say little.
_ORDER = (
    *("setting", "order", "arrangement", "part", "argument", "operation", "divisor", "sequence", "number"),
    *("kept", "broadcast", "left_out", "too_much", "stopped", "through", "operand"),
)
# What takes an axis away, unless it is told to keep it.
_REDUCING = ("mean", "sum", "amax", "amin", "std", "var", "norm", "logsumexp", "prod", "max", "min", "argmax")


@dataclass(frozen=True)
class Known:
    """What could stand elsewhere in a function: values, the nearest first, and layers of `self` that it calls; whether it computes with complex numbers."""

    values: Sequence[ast.expr]
    layers: Sequence[ast.expr]
    has_complex: bool = False


@dataclass(frozen=True)
class Edit:
    """Another expression in place of one, or other statements in place of a block's; kind: what it is, as causes are named.

    holder, field, place: where it stands, place None where it is the field itself. statement: that it is in.
    """

    kind: str
    holder: ast.AST
    field: str
    place: int | None
    old: Any
    new: Any
    statement: ast.stmt

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
    for owner, name, index, node in _expressions(statement):
        reversed_ = [("order", code("list(V)[::-1]", V=node))] if name == "iter" else []
        assigned = _assigned(node, known.values) if owner is statement and name == "value" else ()
        for kind, new in (*reversed_, *_instead(node, known), *assigned):
            found.append(Edit(kind, owner, name, index, node, ast.copy_location(new, node), statement))
    found += [
        Edit(kind, holder, field, None, block, others, statement) for kind, others in blocks(block, place)
    ]
    return sorted(found, key=lambda edit: _ORDER.index(edit.kind))


def edits_with(
    holder: ast.AST, field: str, place: int, numbers: Sequence[float], functions: Sequence[str]
) -> list[Edit]:
    """Edits of a statement, as of `edits_of`, that put other numbers where it has some, or leaves a setting at its default; or, where there are
    functions, put these around a value, with the numbers as their bounds.
    """
    found, statement = list[Edit](), getattr(holder, field)[place]
    around = [*map(code, _around(functions, numbers))]
    for owner, name, index, node in _expressions(statement):
        if functions:
            others = [("left_out", placed(each, {"V": node})) for each in around if _is_changeable(node)]
        elif isinstance(value_of(node), int | float) and not isinstance(value_of(node), bool):
            others = [("number", number(each)) for each in numbers]
        else:
            others = [("setting", each) for each in with_numbers(node, numbers)]
        found += [
            Edit(kind, owner, name, index, node, ast.copy_location(new, node), statement)
            for kind, new in others
        ]
    return found


def _is_changeable(node: ast.expr) -> bool:
    """Whether a function may be put around it."""
    return is_value(node) and isinstance(
        node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp
    )


def _around(functions: Sequence[str], numbers: Sequence[float]) -> Iterator[str]:
    """Code that has functions of a value V, of names as expressions have them; bounds are some numbers."""
    yield from (f"V.{each}()" for each in functions if each in _OF_ONE)
    yield from (f"V.{each}(-1)" for each in functions if each in ("softmax", "log_softmax"))
    # The widest bounds first: narrower ones may fit where no value reaches the right one.
    if "clip" in functions or {"maximum", "minimum"} <= {*functions}:
        pairs = [(low, high) for low in numbers for high in numbers if low < high]
        yield from (
            f"V.clamp({low}, {high})" for low, high in sorted(pairs, key=lambda pair: pair[0] - pair[1])
        )
    if "maximum" in functions:
        yield from (f"V.clamp(min={low})" for low in sorted(numbers))
    if "minimum" in functions:
        yield from (f"V.clamp(max={high})" for high in sorted(numbers, reverse=True))


def _expressions(statement: ast.stmt) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """Each expression of a statement, the outermost first, with what holds it; none of the statements in it, nor what is called."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        holder = waiting.pop(0)
        for field, value in ast.iter_fields(holder):
            if isinstance(holder, ast.stmt) and field not in ("value", "test", "iter"):
                continue
            # Of conditions only comparisons of numbers.
            if field == "test" and not _compares_numbers(value):
                continue
            is_function = isinstance(holder, ast.Call) and field == "func"
            for place, each in enumerate(value) if isinstance(value, list) else ((None, value),):
                if isinstance(each, ast.expr) and not is_function:
                    yield holder, field, place, each
                if isinstance(each, ast.expr | ast.keyword | ast.comprehension):
                    waiting.append(each)


def _compares_numbers(node: ast.AST) -> bool:
    words = (isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(node))
    return isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED and not any(words)


def _instead(node: ast.expr, known: Known) -> Instead:
    """(kind, expression) of what may stand in place of one."""
    if isinstance(node, ast.Constant):
        yield from _of_constant(node)
    elif isinstance(node, ast.UnaryOp):
        yield "kept" if isinstance(node.op, ast.Invert | ast.Not) else "operation", node.operand
    elif isinstance(node, ast.BinOp):
        yield from of_operator(node)
    elif isinstance(node, ast.Compare):
        for other in _COMPARED.get(type(node.ops[0]), ()):
            yield "operation", changed(node, ops=[other(), *node.ops[1:]])
    elif isinstance(node, ast.Subscript):
        yield from _of_part(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node, known)
    elif isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load):
        yield from in_other_orders(node, "elts")
    yield from (("divisor", each) for each in other_averages(node))
    yield from (("operation", each) for each in _in_the_middle(node))
    if not is_value(node):
        return
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        yield "stopped", code("V.detach()", V=node)
        if known.has_complex:
            yield "kept", code("V.conj()", V=node)
    if _is_of_masks(node):
        yield from (("kept", code(each, V=node)) for each in ("V.logical_not()", "1 - V"))
    if isinstance(node, ast.Name | ast.Attribute):
        yield from _others(node, known.values)


def _is_of_masks(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and any(word in node.id for word in _OF_MASKS)


def _assigned(node: ast.expr, known: Sequence[ast.expr]) -> Instead:
    """A value with a mask that is at hand; zeros of its shape, as states begin."""
    if isinstance(node, ast.Name | ast.Subscript | ast.Call) and is_value(node):
        yield "operand", code("V.new_zeros(V.shape)", V=node)
    for mask in filter(_is_of_masks, known if isinstance(node, ast.BinOp | ast.Call) else ()):
        yield from (("left_out", code(each, V=node, M=mask)) for each in _MASKED)


def _in_the_middle(node: ast.expr) -> Iterator[ast.expr]:
    """The mean of the two values in the middle, of which torch's median is the lower one."""
    of_axis = isinstance(node, ast.Attribute | ast.Subscript)
    call = node.value if isinstance(node, ast.Attribute | ast.Subscript) else node
    if not isinstance(call, ast.Call) or called(call) not in ("median", "nanmedian"):
        return
    rest, half = given(call), ast.Constant(0.5)
    if bool(rest or call.keywords) == of_axis:
        args = [half, *rest] if receiver(call) is not None else [call.args[0], half, *rest]
        yield changed(renamed(call, called(call).replace("median", "quantile")), args=args)


def _others(node: ast.expr, known: Sequence[ast.expr]) -> Instead:
    text = ast.dump(node)
    yield from (("operand", each) for each in known[:_MOST_NAMES] if ast.dump(each) != text)


def _of_constant(node: ast.Constant) -> Instead:
    value = node.value
    if isinstance(value, bool):
        yield "setting", ast.Constant(not value)
    elif isinstance(value, int):
        others = (value + 1, value - 1, -value, 0, 1, -1, 2, 2 * value, value // 2, value - 2, value + 2)
        yield from (("number", number(each)) for each in dict.fromkeys(others) if each != value)
    elif isinstance(value, float) and value:
        near = (1 - value, 2 * value, value / 2, -value, 10 * value, value / 10, 1 / value)
        more = (value**2, abs(value) ** 0.5, 0.0, 1.0)
        yield from (("number", number(each)) for each in dict.fromkeys((*near, *more)) if each != value)
    elif isinstance(value, str):
        groups = (words for words in _WORDS if value in words)
        yield from (("setting", ast.Constant(each)) for words in groups for each in words if each != value)
        if "->" in value:
            spaced = " " in value.partition("->")[0].strip()
            others = _patterns(value) if spaced else _einsums(value)
            yield from (("arrangement", ast.Constant(each)) for each in others)


def _einsums(equation: str) -> Iterator[str]:
    """Equations of einsum with two letters of one operand exchanged, or of the result."""
    operands, result = equation.replace(" ", "").split("->")
    parts = [*operands.split(","), result]
    for place, part in enumerate(parts):
        for one, other in itertools.combinations(range(len(part)), 2):
            turned = "".join(exchanged(part, one, other))
            if "..." not in part and turned != part:
                each = [*parts[:place], turned, *parts[place + 1 :]]
                yield ",".join(each[:-1]) + "->" + each[-1]


def _patterns(pattern: str) -> Iterator[str]:
    """Patterns, as einops has them, with two names of one group exchanged, or two of a side that are in none."""
    words = re.findall(r"->|[(),]|[^\s(),]+", pattern)
    groups, side, inside = dict[int, tuple[int, int]](), 0, 0
    for place, word in enumerate(words):
        if word in ("->", ","):
            side = place
        elif word in "()":
            inside = place if word == "(" else 0
        elif word != "...":
            groups[place] = side, inside
    for one, other in itertools.combinations(groups, 2):
        if groups[one] == groups[other]:
            text = " ".join(exchanged(words, one, other))
            yield text.replace("( ", "(").replace(" )", ")").replace(" ,", ",")


def _of_part(node: ast.Subscript) -> Instead:
    several = isinstance(node.slice, ast.Tuple)
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    for place, part in enumerate(parts):
        for other in _parts(part):
            now = [*parts[:place], other, *parts[place + 1 :]]
            yield "part", changed(node, slice=ast.Tuple(now, ast.Load()) if several else now[0])
    for place in range(len(parts) - 1):
        yield "part", changed(node, slice=changed(node.slice, elts=exchanged(parts, place, place + 1)))
    yield "too_much", node.value
    if isinstance(node.value, ast.Call) and node.value.args:
        parts_of = [changed(node, value=each) for each in node.value.args]
        yield "sequence", changed(node.value, args=parts_of)


def _parts(part: ast.expr) -> Iterator[ast.expr]:
    if not isinstance(part, ast.Slice):
        value = value_of(part)
        if isinstance(value, int) and not isinstance(value, bool):
            yield from (
                number(each) for each in dict.fromkeys((value + 1, value - 1, -1, 0)) if each != value
            )
        return
    lower, upper, step = part.lower, part.upper, part.step
    first, last = value_of(lower), value_of(upper)
    # What one leaves at the end is left at the start, and the other way round.
    if lower is None and upper is not None:
        yield ast.Slice(upper, None, step)
        if isinstance(last, int):
            yield ast.Slice(number(-last), None, step)
    if upper is None and lower is not None:
        yield ast.Slice(None, lower, step)
        if isinstance(first, int):
            yield ast.Slice(None, number(-first), step)
    if value_of(step) == 2:
        yield ast.Slice(None if lower is not None else ast.Constant(1), upper, step)
    if lower is not None or upper is not None or step is not None:
        yield ast.Slice(None, None, None)


def _of_call(node: ast.Call, known: Known) -> Instead:
    name, of = called(node), operand(node)
    for other in itertools.chain.from_iterable(group for group in _LIKE if name in group):
        if other != name:
            yield "operation", renamed(node, other)
    yield from (("setting", each) for each in other_settings(node))
    yield from (("arrangement", each) for each in (*_repeated(node, name), *_transposed(node, name)))
    if name == "argsort" and of is not None:
        # The places of values in their order, and not the order.
        axis = argument(node, "dim") or ast.Constant(-1)
        yield "operation", code("V.argsort(dim=D)", V=node, D=axis)
    if name in _REDUCING and argument(node, "keepdim") is None:
        yield (
            "broadcast",
            changed(node, keywords=[*node.keywords, ast.keyword("keepdim", ast.Constant(True))]),
        )
    if name.endswith("_loss"):
        for place, each in enumerate(node.args[:2]):
            others = (code(template, V=each) for template in BROADCAST)
            yield from (
                ("broadcast", changed(node, args=[*node.args[:place], other, *node.args[place + 1 :]]))
                for other in others
            )
    for place in range(len(node.keywords)):
        yield "argument", changed(node, keywords=[*node.keywords[:place], *node.keywords[place + 1 :]])
    yield from in_other_orders(node, "args")
    if of is not None and name not in NUMBERS and is_value(of):
        yield "through" if name in ("detach", "clone") else "too_much", of
    yield from _of_each_sample(node, name)
    yield from _of_what_counts(node, name, filter(_is_of_masks, known.values))
    if name in ("masked_fill", "where") and node.args:
        yield "kept", changed(node, args=[ast.UnaryOp(ast.Invert(), node.args[0]), *node.args[1:]])
    if isinstance(of, ast.BinOp):
        for side in ("left", "right"):
            if is_value(inner := getattr(of, side)):
                yield "sequence", changed(of, **{side: applied(node, inner)})
    # One function of another one's result, in the other order.
    if isinstance(of, ast.Call) and (inner := operand(of)) is not None and is_value(inner):
        yield "sequence", applied(of, applied(node, inner))
    if node.args and all(isinstance(each, ast.Subscript) for each in node.args):
        slices = {ast.dump(each.slice) for each in node.args}
        if len(slices) == 1:
            whole = changed(node, args=[each.value for each in node.args])
            yield "sequence", changed(node.args[0], value=whole)
    if any(ast.dump(each) == ast.dump(node.func) for each in known.layers):
        yield from (("operand", changed(node, func=each)) for _, each in _others(node.func, known.layers))


def _of_each_sample(node: ast.Call, name: str) -> Instead:
    """A statistic of all numbers, for one of each sample, or along an axis; one of all axes but the last, for one of all but the first."""
    of = receiver(node)
    if of is None or name not in _REDUCING:
        return
    if not (node.args or node.keywords):
        keeping = "V.{}(dim={}, keepdim=True)"
        for axes in (_BUT_FIRST, "-1", "0"):
            yield (
                "broadcast",
                code(keeping.format({"max": "amax", "min": "amin"}.get(name, name), axes), V=of),
            )
    for place, each in enumerate(node.keywords):
        if each.arg in ("dim", "axis") and isinstance(each.value, ast.Call | ast.Tuple | ast.List):
            for axes in (_BUT_FIRST, _BUT_LAST):
                other = changed(each, value=code(axes, V=of))
                yield (
                    "broadcast",
                    changed(node, keywords=[*node.keywords[:place], other, *node.keywords[place + 1 :]]),
                )


def _of_what_counts(node: ast.Call, name: str, masks: Iterator[ast.expr]) -> Instead:
    """A mean, for one over what a mask keeps."""
    of = operand(node)
    if name == "mean" and of is not None:
        for mask in itertools.islice(masks, _MOST_MASKS):
            for template in ("M", "M.unsqueeze(1)", "M.unsqueeze(-1)"):
                weights = code(template, M=mask)
                both = (ast.BinOp(of, ast.Mult(), weights), weights)
                sums = [applied(renamed(node, "sum"), each) for each in both]
                yield "divisor", ast.BinOp(sums[0], ast.Div(), sums[1])


def _repeated(node: ast.Call, name: str) -> Iterator[ast.expr]:
    """Elements repeated one by one for a tensor that is repeated whole, and the other way round."""
    of, times = operand(node), given(node)
    if of is None or not times:
        return
    if name in ("repeat", "tile"):
        sizes = list(times[0].elts) if isinstance(times[0], ast.Tuple | ast.List) else times
        for place, size in enumerate(sizes):
            if value_of(size) != 1:
                axis = number(place - len(sizes))
                yield code("V.repeat_interleave(N, dim=D)", V=of, N=size, D=axis)
    if name == "repeat_interleave":
        axis = argument(node, "dim") or (times[1] if len(times) > 1 else ast.Constant(0))
        yield code("torch.cat([V] * N, dim=D)", V=of, N=times[0], D=axis)


def _transposed(node: ast.Call, name: str) -> Iterator[ast.expr]:
    """A view of sizes in another order and a transposition, for one of them, and the other way round."""
    of = receiver(node)
    if of is None:
        return
    if name in ("transpose", "swapaxes") and isinstance(of, ast.Call) and called(of) in _VIEWS:
        axes = [value_of(each) for each in node.args]
        if len(axes) == 2 and all(isinstance(each, int) and abs(each) < len(of.args) for each in axes):
            yield changed(of, args=exchanged(of.args, axes[0], axes[1]))
    if name in ("view", "reshape"):
        for place in range(len(node.args) - 1):
            made = changed(node, args=exchanged(node.args, place, place + 1))
            yield code("V.transpose(A, B)", V=made, A=number(place), B=number(place + 1))
    if name in (*_VIEWS, "flatten"):
        for one, other in _TURNED:
            turned = code("V.transpose(A, B)", V=of, A=number(one), B=number(other))
            yield renamed(applied(node, turned), "reshape" if name == "view" else name)
