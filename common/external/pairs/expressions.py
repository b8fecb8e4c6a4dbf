"""What an operation computes, as an expression of tensors that both models have, in words that both frameworks share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from parity.common.external.pairs.computations import WHOLE, Argument, Computation, Operation
from parity.common.external.process.operations import COUNTS

# Deeper than this an expression is told as '...'; where all of it is no longer than this, deeper.
_DEPTH, _DEEPEST, _LENGTH = 5, 12, 360
# Of more operands only some are told.
_OPERANDS = 5
# How tensors are called that are no weight, no input and nothing of the other model: by their numbers, or their shape.
UNNAMED = ("the numbers", "a tensor of")
_BETWEEN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}
# What takes a part of a tensor.
PARTS = ("take", "slice")
COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum", "eq", "ne", "and", "or"))


@dataclass(frozen=True)
class Expression:
    """An operation on expressions; or a tensor that both models have, or a number.

    name: of the operation, '' for a tensor or a number. same: of a tensor that both have, its number in Keras's pass. number:
    that all elements are. text: how a tensor is called, '' for numbers that are no weights. tensor: its number in its own pass. settings: as the framework has them.
    chain: how the tensor is rearranged before it is used. shape: with which it is used. line: of the user's code. called: from where.
    """

    name: str = ""
    operands: tuple[Expression, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    same: int | None = None
    number: float | None = None
    text: str = ""
    chain: tuple[str, ...] = field(default=(), compare=False)
    shape: tuple[int, ...] = field(default=(), compare=False)
    tensor: int | None = field(default=None, compare=False)
    line: str = field(default="", compare=False)
    called: str = field(default="", compare=False)

    def __str__(self) -> str:
        text = self.told(_DEPTH)
        for depth in range(_DEPTH + 1, _DEEPEST):
            more = self.told(depth) if "..." in text else text
            if len(more) > _LENGTH:
                break
            text = more
        return text

    def told(self, depth: int) -> str:
        """In words; parts that are deeper are left out."""
        if not self.name:
            return self.text or f"{self.number:.9g}"
        if not depth:
            return "..."
        operands = [each.told(depth - 1) for each in self.operands]
        if len(operands) > _OPERANDS:
            # Of a stack of all steps the first ones say what the others are.
            operands = [*operands[:2], "...", operands[-1]]
        sign = _BETWEEN.get(self.name)
        if sign is not None and len(operands) == 2:
            of_sums = [
                f"({text})" if each.name in _BETWEEN and text != "..." else text
                for each, text in zip(self.operands, operands, strict=True)
            ]
            return f" {sign} ".join(of_sums)
        if self.name in PARTS and operands:
            whole = f"({operands[0]})" if self.operands[0].name in _BETWEEN else operands[0]
            return f"{whole}{_index(dict(self.settings))}"
        # A name of a sum needs no brackets here.
        sums = {each.text for each in self.operands if not each.name and each.text.startswith("(")}
        operands = [text[1:-1] if text in sums else text for text in operands]
        settings = [f"{name}={_brief(value)}" for name, value in self.settings]
        return f"{self.name}({', '.join([*operands, *settings])})"

    def parts(self) -> list[Expression]:
        """This and all that it consists of, each once: what a loop computes is a part of all that comes after it."""
        found, waiting, seen = [], [self], {id(self)}
        while waiting:
            part = waiting.pop()
            found.append(part)
            new = [each for each in part.operands if id(each) not in seen]
            seen |= set(map(id, new))
            waiting += new
        return found

    @cached_property
    def shared(self) -> Counter[int]:
        """How often each tensor that both models have stands in it."""
        return Counter(part.same for part in self.parts() if part.same is not None)


def _index(settings: Mapping[str, Any]) -> str:
    """A part of a tensor as one indexes it: '[:, 1:]'."""
    ends = [str(settings.get(name, "")) for name in ("start", "stop", "step")]
    part = settings["index"] if "index" in settings else ":".join(ends if ends[2] else ends[:2])
    axis = settings.get("axis", 0)
    return f"[{':, ' * axis}{part}]" if axis >= 0 else f"[..., {part}{', :' * (-axis - 1)}]"


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_brief, value))}{',' if len(value) == 1 else ''})"
    return str(value)


class Reader:
    """Reads expressions off a computation.

    known: of a tensor that both models have, its number in Keras's pass. names: how such tensors are called, by that number.
    own: how tensors are called that this side alone has, by number.
    """

    def __init__(
        self,
        computation: Computation,
        known: Callable[[int], int | None],
        names: Mapping[int, str],
        own: Mapping[int, str],
    ) -> None:
        self.computation, self.known = computation, known
        self._names, self._own = names, own
        self._read: dict[int, Expression] = {}

    def read(self, number: int, is_root: bool = False) -> Expression:
        """The expression that makes a tensor; a root is one even if both models have its result."""
        if is_root:
            return self._made(number)
        if number not in self._read:
            maker = self.computation.maker.get(number)
            rearranged = maker is not None and maker.rearranges and maker.tensors
            found = (None if rearranged else self._leaf(number)) or self._made(number)
            self._read[number] = replace(found, shape=self.computation.shapes[number])
        return self._read[number]

    def _leaf(self, number: int) -> Expression | None:
        computation = self.computation
        same = self.known(number)
        if same is not None:
            return Expression(same=same, text=self._name(number, same), tensor=number)
        if computation.is_number(number):
            value = float(computation.fingerprints[number][COUNTS])
            return Expression(number=value, text=self._own.get(number, ""), tensor=number)
        if number in self._own or number not in computation.maker:
            return Expression(text=self._own.get(number) or self._unnamed(number), tensor=number)
        return None

    def is_given(self, number: int) -> bool:
        """Whether a tensor is given to a layer, and is none of its own weights or numbers."""
        number = self.computation.source(number)
        if number in self.computation.parameters or self.computation.is_number(number):
            return False
        return number in self.computation.maker or self.known(number) is not None or number in self._own

    def _unnamed(self, number: int) -> str:
        few = self.computation.few.get(number)
        if few is not None:
            return f"{UNNAMED[0]} {_brief(_whole(few))}"
        return f"{UNNAMED[1]} {'x'.join(map(str, self.computation.shapes[number]))} numbers"

    def _name(self, number: int, same: int) -> str:
        if same in self._names:
            return self._names[same]
        maker = self.computation.maker.get(number)
        if maker is None:
            return self._unnamed(number)
        made = self._made(number)
        return f"({made.told(2)})" if made.name in _BETWEEN else made.told(2)

    def _made(self, number: int) -> Expression:
        maker = self.computation.maker.get(number)
        if maker is None:
            return self._leaf(number) or Expression(text="a tensor", tensor=number)
        if maker.rearranges and maker.tensors:
            inner = self.read(maker.tensors[0])
            shape = "x".join(map(str, self.computation.shapes[number]))
            chain = (*inner.chain, f"{_snake(maker.name.strip('_'))} to {shape}")
            return replace(inner, line=inner.line or maker.line, chain=chain)
        read = replace(_operation(maker, self, number), shape=self.computation.shapes[number])
        made = _simplified(read)
        return replace(made, tensor=number, line=maker.line, called=maker.called)


def _simplified(made: Expression) -> Expression:
    """What both frameworks' code has in other forms in one: means, reductions to one number, masks, scaled products, logarithms of sums."""
    if made.name == "div" and made.operands[0].name == "sum" and made.operands[0].operands:
        of = made.operands[0].operands[0]
        if made.operands[1].number == math.prod(of.shape) / math.prod(made.shape):
            return _simplified(replace(made.operands[0], name="mean", shape=made.shape))
    if made.name in _REDUCING and math.prod(made.shape) == 1 and made.operands:
        inner = made.operands[0]
        if inner.name == made.name != "sum" and inner.operands:
            made = replace(made, operands=inner.operands)
        made = replace(made, settings=())
    simpler = _SIMPLER.get(made.name)
    return made if simpler is None else simpler(_without_signs(made))


def _without_signs(made: Expression) -> Expression:
    """What is linear in an operand that has the other sign, with that of the result."""
    for place, operand in enumerate(made.operands[: 1 if made.name == "div" else None]):
        if operand.name == "neg" and made.name in ("div", "mul", "mean", "sum"):
            rest = (*made.operands[:place], operand.operands[0], *made.operands[place + 1 :])
            of = _simplified(replace(made, operands=rest, tensor=None))
            return replace(made, name="neg", operands=(of,), settings=())
    return made


def _variance(made: Expression) -> Expression:
    """The mean of squared differences from the mean."""
    square = made.operands[0] if made.operands else made
    if made.name == "mean" and square.name == "pow" and square.operands[1].number == 2:
        apart = square.operands[0]
        if apart.name == "sub" and apart.operands[1].name == "mean":
            of, (mean,) = apart.operands[0], apart.operands[1].operands[:1]
            if of.tensor is not None and of.tensor == mean.tensor:
                return replace(made, name="var", operands=(of,), settings=(*made.settings, ("correction", 0)))
    return made


def _deviation(made: Expression) -> Expression:
    """The root of a variance."""
    of = made.operands[0]
    return replace(made, name="std", operands=of.operands, settings=of.settings) if of.name == "var" else made


def _product(made: Expression) -> Expression:
    """A matrix product of which an operand is scaled, as the product that is scaled."""
    for place, operand in enumerate(made.operands):
        if operand.name == "mul" and len(operand.operands) == 2:
            number = next((each for each in operand.operands if each.number is not None), None)
            if number is not None:
                (scaled,) = (each for each in operand.operands if each is not number)
                chain = (*scaled.chain, *operand.chain)
                of = replace(scaled, chain=chain, shape=operand.shape)
                operands = (*made.operands[:place], of, *made.operands[place + 1 :])
                return replace(
                    made, name="mul", operands=(replace(made, operands=operands, tensor=None), number)
                )
    return made


def _masked(made: Expression) -> Expression:
    """A choice between a tensor and a number far below it: the number where something is hidden."""
    if len(made.operands) != 3:
        return made
    where, one, other = made.operands
    hides = is_far_below(other) and not is_far_below(one)
    return replace(made, operands=(_opposite(where), other, one)) if hides else made


def is_far_below(one: Expression) -> bool:
    """Whether it is a number that hides what it stands for, as minus infinity does."""
    return one.number is not None and one.number <= _FAR_BELOW


def _opposite(of: Expression) -> Expression:
    return of.operands[0] if of.name == "not" else Expression("not", (of,), shape=of.shape, line=of.line)


def _sum_with_mask(made: Expression) -> Expression:
    """A sum with what is far below zero where something is hidden, and else zero; and a logarithm of a sum of exponentials, as TensorFlow has it."""
    for one, other in (made.operands, made.operands[::-1]) if len(made.operands) == 2 else ():
        if one.name == "where" and is_far_below(one.operands[1]) and _filled(one.operands[2]) == 0:
            return replace(made, name="where", operands=(*one.operands[:2], other))
        inner, names = one, list[str]()
        while len(names) < 4 and inner.operands:
            names.append(inner.name)
            inner, last = inner.operands[0], inner
            if names[-1] == "sum":
                settings = last.settings
        if names == ["log", "sum", "exp", "sub"] and "is_finite" in {each.name for each in other.parts()}:
            return replace(made, name="logsumexp", operands=(inner,), settings=settings)
    return made


def _all_of(made: Expression) -> Expression:
    """What is true together with what always is."""
    rest = [each for each in made.operands if _filled(each) != 1]
    return rest[0] if len(rest) == 1 else made


def _filled(made: Expression) -> float | None:
    """The one number of a tensor that is filled with it."""
    if made.name in _FILLED:
        return _FILLED[made.name]
    numbers = [each.number for each in made.operands if each.number is not None]
    return numbers[-1] if made.name in ("fill", "full_like") and numbers else made.number


_FAR_BELOW = -1e4
_FILLED = {"zeros_like": 0.0, "ones_like": 1.0}
_SIMPLER: dict[str, Callable[[Expression], Expression]] = {
    "matmul": _product,
    "where": _masked,
    "add": _sum_with_mask,
    "and": _all_of,
    "mean": _variance,
    "sqrt": _deviation,
    "sum": _without_signs,
    "mul": _without_signs,
    "div": _without_signs,
}
_REDUCING = ("sum", "mean", "max", "min", "prod")
# What both frameworks have, by the names that TensorFlow and torch give their operations.
_NAMES = {
    **dict.fromkeys(("Add", "AddV2", "BiasAdd", "AddN", "add"), "add"),
    **dict.fromkeys(("Sub", "sub"), "sub"),
    **dict.fromkeys(("Mul", "mul", "MulNoNan"), "mul"),
    **dict.fromkeys(("RealDiv", "Div", "DivNoNan", "div", "true_divide"), "div"),
    **dict.fromkeys(("Neg", "neg"), "neg"),
    **dict.fromkeys(("Pow", "pow"), "pow"),
    **dict.fromkeys(
        ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "mm", "bmm", "mv", "dot"), "matmul"
    ),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative", "convolution"), "conv"),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), "conv_transpose"),
    **dict.fromkeys(("Softmax", "_softmax"), "softmax"),
    **dict.fromkeys(("LogSoftmax", "_log_softmax"), "log_softmax"),
    **dict.fromkeys(("Mean", "mean"), "mean"),
    **dict.fromkeys(("Sum", "sum"), "sum"),
    **dict.fromkeys(("Prod", "prod"), "prod"),
    **dict.fromkeys(("Max", "amax", "max"), "max"),
    **dict.fromkeys(("Min", "amin", "min"), "min"),
    **dict.fromkeys(("Maximum", "maximum"), "maximum"),
    **dict.fromkeys(("Minimum", "minimum"), "minimum"),
    **dict.fromkeys(("SelectV2", "Select", "where"), "where"),
    **dict.fromkeys(("ConcatV2", "Concat", "cat"), "concat"),
    **dict.fromkeys(("Pack", "stack"), "stack"),
    **dict.fromkeys(("Unpack", "unbind"), "unstack"),
    **dict.fromkeys(("Split", "SplitV", "split", "split_with_sizes", "unsafe_split", "chunk"), "split"),
    **dict.fromkeys(
        ("Pad", "PadV2", "MirrorPad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d"), "pad"
    ),
    **dict.fromkeys(("Tile", "repeat"), "tile"),
    **dict.fromkeys(
        ("GatherV2", "GatherNd", "ResourceGather", "embedding", "index_select", "gather", "index"), "gather"
    ),
    **dict.fromkeys(("ReverseV2", "flip"), "flip"),
    **dict.fromkeys(("Roll", "roll"), "roll"),
    **dict.fromkeys(("ArgMax", "argmax"), "argmax"),
    **dict.fromkeys(("TopKV2", "topk"), "topk"),
    **dict.fromkeys(("Equal", "eq"), "eq"),
    **dict.fromkeys(("NotEqual", "ne"), "ne"),
    **dict.fromkeys(("Greater", "gt"), "gt"),
    **dict.fromkeys(("GreaterEqual", "ge"), "ge"),
    **dict.fromkeys(("Less", "lt"), "lt"),
    **dict.fromkeys(("LessEqual", "le"), "le"),
    **dict.fromkeys(("LogicalNot", "logical_not", "bitwise_not"), "not"),
    **dict.fromkeys(("LogicalAnd", "logical_and", "bitwise_and"), "and"),
    **dict.fromkeys(("LogicalOr", "logical_or", "bitwise_or"), "or"),
    **dict.fromkeys(("Any", "any"), "any"),
    **dict.fromkeys(("All", "all"), "all"),
    **dict.fromkeys(("Cumsum", "cumsum"), "cumsum"),
    **dict.fromkeys(("AvgPool", "AvgPool3D", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d"), "avg_pool"),
    **dict.fromkeys(
        ("MaxPool", "MaxPool3D", "max_pool2d_with_indices", "max_pool3d_with_indices"), "max_pool"
    ),
    **dict.fromkeys(("native_layer_norm",), "layer_norm"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), "batch_norm"),
    **dict.fromkeys(("native_group_norm",), "group_norm"),
    **dict.fromkeys(("Abs",), "abs"),
    **dict.fromkeys(("LeakyRelu",), "leaky_relu"),
    **dict.fromkeys(("clamp", "ClipByValue", "clamp_min", "clamp_max", "hardtanh"), "clip"),
}
# Of operations by their frameworks' names, which argument is what the call says, and no operand: its place from the end or the start.
_SAID: dict[str, dict[int, str]] = {
    **{
        name: {1: "axis"}
        for name in ("Mean", "Sum", "Prod", "Max", "Min", "Any", "All", "Cumsum", "ReverseV2", "ArgMax")
    },
    "ConcatV2": {-1: "axis"},
    "Tile": {1: "times"},
    **{name: {1: "padding"} for name in ("Pad", "PadV2", "MirrorPad")},
    "Roll": {1: "by", 2: "axis"},
    "GatherV2": {2: "axis"},
    "Split": {0: "axis"},
    "SplitV": {1: "sizes", 2: "axis"},
    "OneHot": {1: "depth", 2: "on", 3: "off"},
    "TopKV2": {1: "k"},
    "bucketize": {1: "boundaries"},
    **{name: {0: "shape"} for name in ("Conv2DBackpropInput", "Conv3DBackpropInputV2")},
}
# Settings of TensorFlow's that say how and not what.
_IGNORED = frozenset(
    (
        *(
            "T",
            "dtype",
            "SrcT",
            "DstT",
            "Truncate",
            "N",
            "Tidx",
            "Index",
            "Tshape",
            "Tpaddings",
            "Tparams",
            "Tindices",
        ),
        *(
            "Taxis",
            "Tshift",
            "Tmultiples",
            "Tlen",
            "Tdim",
            "Tperm",
            "TI",
            "U",
            "V",
            "Tout",
            "out_type",
            "Tsplits",
        ),
        *(
            "data_format",
            "grad_a",
            "grad_b",
            "grad_x",
            "grad_y",
            "adj_x",
            "adj_y",
            "transpose_a",
            "transpose_b",
        ),
        *(
            "num",
            "num_split",
            "incompatible_shape_error",
            "explicit_paddings",
            "use_cudnn_on_gpu",
            "validate_indices",
        ),
        *("index_type", "Tk", "sorted", "on", "off"),
        *("batch_dims", "swap", "memory_format", "layout", "device", "pin_memory", "non_blocking"),
    )
)
# How torch calls what TensorFlow calls otherwise.
_CALLED = {
    "dim": "axis",
    "dims": "axis",
    "shifts": "by",
    "repeats": "times",
    "pad": "padding",
    "stride": "strides",
    "eps": "epsilon",
}
# What convolutions are told besides, as it usually is.
_USUAL = {"output_padding": 0, "groups": 1, "dilation": 1, "dilations": 1, "transposed": False}
# What torch's operations are told besides, and what says nothing.
_SILENT = frozenset(
    (
        "half_to_float",
        "keepdim",
        "keep_dims",
        "output_mask",
        "normalized_shape",
        "self",
        "other",
        "exponent",
        "value",
    )
)


def _operation(made: Operation, reader: Reader, result: int | None = None) -> Expression:
    name = _NAMES.get(made.name, made.name.strip("_"))
    name = name if name in _NAMES.values() else _snake(name)
    special = _SPECIAL.get(made.name)
    if special is not None:
        found = special(made, reader)
        if found is not None:
            return found
    count = len(made.arguments)
    said = {place % count: what for place, what in _SAID.get(made.name, {}).items() if count}
    operands: list[Expression] = []
    settings: list[tuple[str, Any]] = []
    for place, argument in enumerate(made.arguments):
        if place in said and argument.tensor is not None:
            if said[place] in _IGNORED:
                continue
            settings.append((said[place], _values(argument.tensor, reader)))
        elif argument.several:
            operands += [_operand(each, reader) for each in argument.several]
        elif argument.tensor is not None:
            if name not in WHOLE or reader.is_given(argument.tensor):
                operands.append(reader.read(argument.tensor))
        elif len(operands) < _operands_of(name) and _is_number(argument.literal):
            operands.append(_number(argument.literal))
    for key, value in made.settings.items():
        called = _CALLED.get(key, key)
        if key not in _IGNORED | _SILENT and not _says_nothing(called, value):
            settings.append((called, value))
    if len(made.results) > 1 and name not in WHOLE and result is not None:
        settings.append(("part", made.results.index(result)))
    return Expression(name, tuple(operands), tuple(settings))


def _says_nothing(name: str, value: Any) -> bool:
    if name in _USUAL:
        return all(each == _USUAL[name] for each in (value if isinstance(value, list | tuple) else [value]))
    return value is None or value is False or value in ("", "NHWC", [])


def _operands_of(name: str) -> int:
    return 2 if name in _BETWEEN or name in COMMUTATIVE or name in ("pow", "gt", "ge", "lt", "le") else 0


def _operand(argument: Any, reader: Reader) -> Expression:
    if argument.tensor is not None:
        return reader.read(argument.tensor)
    return _number(argument.literal)


def _number(value: Any) -> Expression:
    return Expression(number=float(value)) if isinstance(value, int | float) else Expression(text=str(value))


def _values(number: int, reader: Reader) -> Any:
    """A small tensor's numbers, as a call would say them."""
    few = reader.computation.few.get(number)
    if few is None:
        return "..."

    return _whole(few)


def _whole(value: Any) -> Any:
    """Numbers without a fraction as whole ones."""
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if value == int(value) else value


def _snake(name: str) -> str:
    if name.islower():
        return name
    return "".join(f"_{c.lower()}" if c.isupper() and n else c.lower() for n, c in enumerate(name))


def _operands(made: Operation, reader: Reader) -> list[Expression]:
    return [
        _operand(each, reader)
        for each in made.arguments
        if each.tensor is not None or _is_number(each.literal)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plus_product(made: Operation, reader: Reader) -> Expression:
    """torch's `addmm(bias, x, kernel)`."""
    bias, x, kernel = (reader.read(number) for number in made.tensors[:3])
    return Expression("add", (Expression("matmul", (x, kernel), line=made.line), bias))


def _with_bias(made: Operation, reader: Reader) -> Expression | None:
    """torch's convolution with a bias."""
    if len(made.tensors) < 3:
        return None
    plain = replace(made, arguments=(*made.arguments[:2], Argument(), *made.arguments[3:]))
    return Expression("add", (_operation(plain, reader), reader.read(made.tensors[2])))


def _square(made: Operation, reader: Reader) -> Expression:
    return Expression("pow", (reader.read(made.tensors[0]), Expression(number=2.0)))


def _squared_difference(made: Operation, reader: Reader) -> Expression:
    difference = Expression("sub", tuple(reader.read(number) for number in made.tensors))
    return Expression("pow", (difference, Expression(number=2.0)))


def _mean_squared_error(made: Operation, reader: Reader) -> Expression:
    """torch's `mse_loss`."""
    how = {0: "", 1: "mean", 2: "sum"}[made.settings.get("reduction", 1)]
    squares = _squared_difference(made, reader)
    return Expression(how, (squares,)) if how else squares


def _norm(made: Operation, reader: Reader) -> Expression | None:
    """torch's `linalg_vector_norm`, of the usual order."""
    if made.settings.get("ord", 2) != 2:
        return None
    squares = Expression("pow", (reader.read(made.tensors[0]), Expression(number=2.0)))
    axes = made.settings.get("dim")
    return Expression("sqrt", (Expression("sum", (squares,), () if axes is None else (("axis", axes),)),))


def _attention(made: Operation, reader: Reader) -> Expression | None:
    """torch's `scaled_dot_product_attention`, but for one that is told to be causal, which makes no mask that one could see."""
    query, key, value, *mask = made.tensors
    if made.settings.get("is_causal") or made.settings.get("dropout_p") or len(mask) > 1:
        return None
    size = reader.computation.shapes[query][-1]
    scale = Expression(number=float(made.settings.get("scale") or size**-0.5))
    scores = Expression(
        "mul", (Expression("matmul", (reader.read(query), reader.read(key)), line=made.line), scale)
    )
    if mask:
        scores = _simplified(Expression("add", (scores, reader.read(mask[0]))))
    return Expression("matmul", (Expression("softmax", (scores,), line=made.line), reader.read(value)))


def _masked_fill(made: Operation, reader: Reader) -> Expression:
    x, mask, value = made.arguments[:3]
    return Expression("where", (_operand(mask, reader), _operand(value, reader), _operand(x, reader)))


def _reversed_difference(made: Operation, reader: Reader) -> Expression:
    first, second = _operands(made, reader)[:2]
    return Expression("sub", (second, first))


def _sum(made: Operation, reader: Reader) -> Expression | None:
    """torch's `add` and `sub` with a factor."""
    alpha = made.settings.get("alpha", 1)
    if alpha == 1:
        return None
    first, second = _operands(made, reader)[:2]
    return Expression(_NAMES[made.name], (first, Expression("mul", (second, _number(alpha)))))


def _slice(made: Operation, reader: Reader) -> Expression:
    """torch's slices of one axis, as in 'x[axis 1: 2:]'."""
    axis, *ends = [argument.literal for argument in made.arguments[1:]] or [0]
    given = dict(zip(("start", "stop", "step"), ends, strict=False))
    if made.name == "select":
        return Expression(
            "take", (reader.read(made.tensors[0]),), (("axis", axis), ("index", ends[0] if ends else 0))
        )
    settings = [("axis", axis)]
    settings += [("start", given["start"])] if given.get("start") else []
    settings += [("stop", given["stop"])] if given.get("stop") not in (None, 2**63 - 1) else []
    settings += [("step", given["step"])] if given.get("step", 1) != 1 else []
    return Expression("slice", (reader.read(made.tensors[0]),), tuple(settings))


def _strided_slice(made: Operation, reader: Reader) -> Expression | None:
    """TensorFlow's slices of several axes: one for each axis of which a part is taken."""
    lists = [_values(number, reader) for number in made.tensors[1:4]]
    if len(lists) < 3 or not all(isinstance(each, list) for each in lists):
        return None
    masks = {
        key: int(made.settings.get(f"{key}_mask") or 0)
        for key in ("begin", "end", "shrink_axis", "ellipsis", "new_axis")
    }
    found = reader.read(made.tensors[0])
    rank, places = len(reader.computation.shapes[made.tensors[0]]), range(len(lists[0]))
    real = [not (masks["new_axis"] | masks["ellipsis"]) & 1 << place for place in places]
    # Of what is left of the tensor, which has an axis less after each that is taken.
    axis = taken = 0
    for place, start, stop, step in zip(places, *lists, strict=True):
        bit = 1 << place
        if masks["ellipsis"] & bit:
            axis = rank - taken - sum(real[place + 1 :])
        elif real[place] and masks["shrink_axis"] & bit:
            found = Expression("take", (found,), (("axis", axis), ("index", start)))
            taken += 1
        elif real[place]:
            settings = [] if masks["begin"] & bit or not start else [("start", start)]
            settings += [] if masks["end"] & bit else [("stop", stop)]
            settings += [] if step == 1 else [("step", step)]
            if settings:
                found = Expression("slice", (found,), (("axis", axis), *settings))
            axis += 1
    return found


def _einsum(made: Operation, reader: Reader) -> Expression | None:
    """TensorFlow's sums of products, which torch's `einsum` makes of `bmm`."""
    equation = str(made.settings.get("equation"))
    letters, of_result = equation.split("->")
    terms = letters.split(",")
    if len(terms) != 2 or not set(terms[0]) & set(terms[1]) - set(of_result):
        return None
    operands = [reader.read(number) for number in made.tensors]
    arranged = [
        replace(each, chain=(*each.chain, f"as {term} of {equation}"))
        for each, term in zip(operands, terms, strict=True)
    ]
    return Expression("matmul", tuple(arranged))


_SPECIAL: dict[str, Callable[[Operation, Reader], Expression | None]] = {
    "Einsum": _einsum,
    "addmm": _plus_product,
    "baddbmm": _plus_product,
    "convolution": _with_bias,
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "mse_loss": _mean_squared_error,
    "masked_fill": _masked_fill,
    "linalg_vector_norm": _norm,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "rsub": _reversed_difference,
    "add": _sum,
    "sub": _sum,
    "slice": _slice,
    "select": _slice,
    "StridedSlice": _strided_slice,
}
