"""Which rules take one tensor's shape to another's: the likely first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.mapping.parameter_groups import ParameterGroup, Part
from parity.common.spec.external.patterns import Shape
from parity.common.spec.external.rules import parse_rule

_LETTERS = "abcdefghij"
_RANK_LIMIT = 5
# Rules by which one Keras tensor becomes several of torch's: which of them fit, the shapes tell.
_DIVIDED = [
    *("(n o) -> n o", "(o n) -> n o"),
    *("i n h k -> n (h k) i", "i h n k -> n (h k) i", "i n h k -> n i h k"),
    *("n h k -> n (h k)", "n o -> n o", "o n -> n o"),
    *("i (n o) -> n o i", "i (o n) -> n o i"),
]
# Of larger tensors it is not tried out whether two rules do the same.
_COMPARED_SIZE = 4_000_000


def fitting(
    keras: ParameterGroup, torch: ParameterGroup, slot: str, flattened: Shape | None
) -> tuple[str, ...]:
    """Return rules for the parts in a slot of two groups, () if none fits; several if shapes leave it open.

    flattened: what was flattened before Keras's layer: (height, width, channels).
    """
    ours, theirs = keras.parts[slot], torch.parts[slot]
    if keras.op == "recurrent" or torch.op == "recurrent":
        return _recurrent(keras, torch, slot)
    if ours.count > 1 or theirs.count > 1:
        return _parts(ours, theirs)
    found = [
        rule for rule in _by_kind(keras, torch, slot, flattened) if fits(rule, [ours.shape], [theirs.shape])
    ]
    if found and _is_settled(keras, torch, slot, found, flattened):
        return tuple(found[:1])
    if not found or math.prod(ours.shape) <= _COMPARED_SIZE:
        stock = slot == "main" and all(_is_stock_convolution(group) for group in (keras, torch))
        others = arrangements(ours.shape, theirs.shape)
        found += [rule for rule in others if _keeps_channels(rule)] if stock else others
    return distinct(found, ours.shape)


def _is_stock_convolution(group: ParameterGroup) -> bool:
    layer = group.layer
    return group.op == "conv" and layer.kind != "" and not layer.overridden and "depthwise" not in layer.kind


def _keeps_channels(rule: str) -> bool:
    """Whether a kernel's inputs and outputs are torch's second and first axis, as they are Keras's last two, whatever the order of its sides."""
    ours, theirs = (side.split() for side in rule.split(" -> "))
    return ours[-2:] == theirs[1::-1]


def distinct(rules: Sequence[str], shape: Shape) -> tuple[str, ...]:
    """The first of all rules that do the same to a shape; of large tensors, of those that are written the same."""
    if len(set(rules)) < 2 or math.prod(shape) > _COMPARED_SIZE:
        return tuple(dict.fromkeys(rules))
    indices = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    found: dict[bytes, str] = {}
    for rule in rules:
        found.setdefault(parse_rule(rule).to_torch([indices], 1)[0].tobytes(), rule)
    return tuple(found.values())


def fits(rule: str, keras: Sequence[Shape], torch: Sequence[Shape]) -> bool:
    """Whether a rule takes shapes to shapes, both ways."""
    try:
        parsed = parse_rule(rule)
        there = parsed.torch_shapes(keras, len(torch)) == list(torch)
        return there and parsed.keras_shapes(torch, len(keras)) == list(keras)
    except ExternalModelError:
        return False


def _by_kind(keras: ParameterGroup, torch: ParameterGroup, slot: str, flattened: Shape | None) -> list[str]:
    """What layers of these kinds mean by such a tensor."""
    ours, theirs = keras.parts[slot].shape, torch.parts[slot].shape
    if slot != "main":
        return ["same", *([f"heads_bias({ours[0]})"] if len(ours) == 2 else [])]
    if len(ours) == len(theirs) == 1:
        return ["same"]
    if "embedding" in (keras.op, torch.op):
        return ["same", "transpose"]
    if len(ours) == len(theirs) > 2:
        if len(ours) > 2 and ("depthwise" in keras.layer.kind or "depthwise" in keras.parts[slot].info.role):
            multiplier = ours[-1]
            return ["conv", "depthwise" if multiplier == 1 else f"depthwise({multiplier})"]
        if "conv" in (keras.op, torch.op):
            return ["conv"]
        return ["same", "conv"] if max(theirs[2:], default=1) == 1 or min(ours[:2]) == 1 else ["conv", "same"]
    found = []
    if len(ours) == len(theirs) == 2:
        # Of one place alone the channels are in order.
        if flattened is not None and math.prod(flattened) == ours[0] != flattened[-1]:
            found.append(f"flatten({','.join(map(str, flattened))})")
        # Code of one's own mostly has a matrix as the other side has it.
        found += ["transpose", "same"] if keras.layer.kind or torch.layer.kind else ["same", "transpose"]
    if len(ours) == 3 and len(theirs) == 2:
        leaves = keras.parts[slot].info.role.startswith(("output", "attention_output"))
        rules = [f"heads({ours[1]})", f"heads_out({ours[0]})"]
        found += rules[::-1] if leaves else rules
    if len(ours) == 2 and len(theirs) >= 3:
        # A convolution whose patches do not overlap is a dense layer on patches, and a 1x1 one is dense.
        spread, sizes = _spread(theirs[2:])
        found.append(f"({spread} i) o -> o i {spread}; {sizes}")
    if len(ours) >= 3 and len(theirs) == 2 and "conv" in keras.op:
        if math.prod(ours[:-2]) == 1:
            found.append(" ".join("1" * (len(ours) - 2)) + " i o -> o i")
        else:
            spread, sizes = _spread(ours[:-2])
            found += [f"{spread} i o -> o (i {spread}); {sizes}", f"{spread} i o -> o ({spread} i); {sizes}"]
    return found


def _spread(sides: Shape) -> tuple[str, str]:
    """Names for the axes of a window, and their sizes, as a pattern has them: 'a b', 'a=3 b=5'."""
    names = _LETTERS[: len(sides)]
    return " ".join(names), " ".join(f"{name}={side}" for name, side in zip(names, sides, strict=True))


def _is_settled(
    keras: ParameterGroup, torch: ParameterGroup, slot: str, found: Sequence[str], flattened: Shape | None
) -> bool:
    """Return whether the kinds alone decide the rule."""
    if slot != "main" or len(keras.parts[slot].shape) == 1:
        return True
    if found[0].startswith("flatten"):
        return False
    if keras.op == torch.op == "conv" or keras.op == torch.op == "embedding":
        return True
    return keras.op == torch.op == "dense" and torch.layer.kind != "" and flattened is None


def arrangements(ours: Shape, theirs: Shape) -> tuple[str, ...]:
    """Every pattern that gives Keras's axes another order, some of them joined or divided."""
    ends = [[size for size in shape if size != 1] for shape in (ours, theirs)]
    if math.prod(ours) != math.prod(theirs) or max(map(len, ends)) > _RANK_LIMIT:
        return ()
    mirrored = len(ends[0]) < len(ends[1])
    fine, coarse = (theirs, ours) if mirrored else (ours, theirs)
    letters = iter(_LETTERS)
    names = [next(letters) if size != 1 else "1" for size in fine]
    axes = [(name, size) for name, size in zip(names, fine, strict=True) if size != 1]
    found = []
    for order in itertools.permutations(axes):
        groups = _grouped(order, coarse)
        if groups is None:
            continue
        joined = [group for group in groups if len(group) > 1]
        sizes = " ".join(f"{name}={size}" for group in joined for name, size in group[:-1])
        one = " ".join(names)
        other = " ".join(_bracket([name for name, _ in group]) for group in groups)
        pattern = f"{other} -> {one}" if mirrored else f"{one} -> {other}"
        found.append(f"{pattern}; {sizes}" if sizes else pattern)
    return tuple(found)


def _bracket(names: Sequence[str]) -> str:
    if not names:
        return "1"
    return names[0] if len(names) == 1 else f"({' '.join(names)})"


def _grouped(order: Sequence[tuple[str, int]], coarse: Shape) -> list[tuple[tuple[str, int], ...]] | None:
    """Neighbouring axes whose products are the sizes of `coarse`; None where there are none."""
    groups: list[tuple[tuple[str, int], ...]] = []
    rest = list(order)
    for size in coarse:
        group: list[tuple[str, int]] = []
        while math.prod(length for _, length in group) < size and rest:
            group.append(rest.pop(0))
        if math.prod(length for _, length in group) != size:
            return None
        groups.append(tuple(group))
    return None if rest else groups


def _recurrent(keras: ParameterGroup, torch: ParameterGroup, slot: str) -> tuple[str, ...]:
    ours, theirs = keras.parts[slot].shape, torch.parts[slot].shape
    kinds = f"{keras.layer.kind} {torch.layer.kind} {torch.layer.type} {keras.layer.type}".lower()
    gru = "gru" in kinds
    if slot in ("main", "recurrent"):
        rule, torch_shapes = "gru" if gru else "transpose", [theirs]
    else:
        rule, torch_shapes = "gru_bias" if gru else "two_biases", [theirs, theirs]
    return (rule,) if fits(rule, [ours], torch_shapes) else ()


def _parts(ours: Part, theirs: Part) -> tuple[str, ...]:
    """Whether parts of tensors that hold several can be the same; the rule is that of the whole."""
    if ours.count > 1 and theirs.count > 1 and (ours.count, ours.index) != (theirs.count, theirs.index):
        return ()
    if min(len(theirs.shape), len(ours.shape)) < 2:
        return ("part",) if math.prod(ours.shape) == math.prod(theirs.shape) else ()
    one = (ours.shape[0], math.prod(ours.shape[1:]))
    other = theirs.shape if theirs.count > 1 and theirs.axis else theirs.shape[::-1]
    return ("part",) if one == other else ()


def joined(ours: Sequence[Part], theirs: Sequence[Part]) -> tuple[str, ...]:
    """Rules between whole tensors, of which one side has one that holds several, in the order of its parts."""
    keras = list(dict.fromkeys(part.info.shape for part in ours))
    torch = list(dict.fromkeys(part.info.shape for part in theirs))
    if ours[0].count > 1 and theirs[0].count > 1:
        return ()
    if theirs[0].count > 1:
        rules = _joined(keras[0], theirs[0])
        shapes = [part.info.shape for part in ours], [torch[0]]
    else:
        rules = _DIVIDED
        shapes = [keras[0]], [part.info.shape for part in theirs]
    return tuple(rule for rule in rules if fits(rule, *shapes))


def _joined(first: Shape, whole: Part) -> list[str]:
    """Keras has several tensors, the first of this shape, and torch one."""
    row = "{} i" if whole.axis == 0 else "i {}"
    heads = first[-2:][0]
    return [
        *(f"n o -> ({order})" for order in ("n o", "o n")),
        *(f"n h k -> ({order}); h={heads}" for order in ("n h k", "h n k")),
        *(f"n i h k -> {row.format(order)}; h={heads}" for order in ("(n h k)", "(h n k)", "(h k n)")),
        *(f"n i o -> {row.format(order)}" for order in ("(n o)", "(o n)")),
    ]
