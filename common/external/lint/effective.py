"""What a layer's settings come to on the tensor that it was given: padding in cells, axes by what they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parity.common.external.lint.settings import PLUMBING
from parity.common.spec.external.outline import LayerInfo, Setting, Shape
from parity.common.spec.layers import Conv1DTranspose
from parity.common.spec.layers.windows import dilated, same_pads

Settings = dict[str, Setting]
_CONVOLUTIONS = {f"{kind}conv{rank}d" for kind in ("", "depthwise_", "separable_") for rank in (1, 2, 3)}
_POSITIVE = ("relu", "relu6", "sigmoid", "softplus", "softmax", "hard_sigmoid")
# A function that contains a softmax.
_ATTENTION = "scaled_dot_product_attention"
# The setting without which there is no tensor to initialise.
_SWITCH = {"bias_initializer": "use_bias", "gamma_initializer": "scale", "beta_initializer": "center"}
# What decides how far windows reach, besides padding.
_WINDOW = ("kernel_size", "size", "strides", "dilation")


@dataclass(frozen=True)
class Item:
    """One layer or operation in the order of a pass.

    kind: the outline's, or that of the simpler layer that it comes to. padded: cells that a zero padding before it
    adds, (before, after) of each axis in one row. positive: whether what these are added to is nowhere below zero.
    part: whether it is one of several that the layer comes to.
    """

    info: LayerInfo
    kind: str
    framework: str
    padded: tuple[int, ...] = ()
    positive: bool = False
    part: bool = False

    @property
    def path(self) -> str:
        """As in the outline."""
        return self.info.path

    @property
    def inside_attention(self) -> bool:
        """Whether it is the softmax of an attention that is called as one."""
        return self.info.type.endswith(_ATTENTION) or (self.part and self.kind == "activation")

    @property
    def rank(self) -> int:
        """Axes that a window slides over; 0 where there is no window."""
        sizes = self.info.settings.get("kernel_size", self.info.settings.get("size", ()))
        return len(sizes) if isinstance(sizes, tuple) else 0

    def sides(self, shapes: tuple[Shape, ...], rank: int) -> tuple[int, ...] | None:
        """Lengths of the axes between batch and features; None where they are not known."""
        if not shapes or not rank or len(shapes[0]) < rank + 1:
            return None
        shape, last = shapes[0], len(shapes[0])
        if self.framework == "tensorflow" and self.info.settings.get("data_format") != "channels_first":
            last -= 1
        sides = [side for side in shape[last - rank : last] if side is not None]
        return tuple(sides) if len(sides) == rank else None


def items_of(infos: Sequence[LayerInfo], framework: str) -> list[Item]:
    """What a pass called, without what only routes tensors or does nothing, and with zero padding put to its user."""
    found: list[Item] = []
    pending: LayerInfo | None = None
    for info in infos:
        item = Item(info, info.kind, framework)
        if pending is not None:
            pads = pending.settings["padding"]
            if isinstance(pads, tuple) and _takes_padding(item, pads) and info.inputs == pending.outputs:
                item = Item(info, info.kind, framework, pads, _is_positive(found, pending))
            else:
                found.append(Item(pending, pending.kind, framework))
            pending = None
        if info.kind == "zero_pad":
            pending = info
        elif info.kind.startswith("separable_"):
            found += _separated(item)
        elif not _does_nothing(item):
            found.append(_simpler(item))
    return found if pending is None else [*found, Item(pending, pending.kind, framework)]


def _takes_padding(item: Item, pads: tuple[int, ...]) -> bool:
    """Return whether zeros before it equal its own padding, or can be distinguished from it."""
    own = item.info.settings.get("padding")
    bare = own == "valid" or (isinstance(own, tuple) and not any(own))
    pool = item.kind.startswith(("max_pool", "average_pool"))
    return len(pads) == 2 * item.rank and (item.kind in _CONVOLUTIONS or (pool and bare))


def _is_positive(before: Sequence[Item], padding: LayerInfo) -> bool:
    """Whether what is padded comes straight from a function that gives nothing below zero."""
    if not before or before[-1].info.outputs != padding.inputs:
        return False
    return before[-1].info.settings.get("function") in _POSITIVE


def _does_nothing(item: Item) -> bool:
    info = item.info
    if info.kind in PLUMBING:
        return True
    if info.kind.endswith("dropout"):
        return not info.settings.get("rate")
    if info.kind == "flatten" and info.inputs:
        return sum(side != 1 for side in info.inputs[0][1:]) <= 1  # it is flat
    return info.settings.get("function") == "linear"


def _separated(item: Item) -> list[Item]:
    """Split a separable convolution into its two convolutions; the first has no bias."""
    info, given = item.info, item.info.settings
    rank, kind = item.rank, item.kind.removeprefix("separable_")
    channels = info.inputs[0][-1] if info.inputs else None
    between = None if channels is None else channels * int(str(given["depth_multiplier"]))
    shapes = tuple((*shape[:-1], between) for shape in info.outputs)
    both = ("data_format", "padding_values", "trainable")
    shared = {name: value for name, value in given.items() if name in both}
    first = {
        **shared,
        **{name: given[name] for name in ("kernel_size", "strides", "padding", "dilation")},
        "filters": between,
        "groups": channels,
        "use_bias": False,
        **_of_kernel(given, "depthwise"),
    }
    second = {
        **shared,
        **dict.fromkeys(("kernel_size", "strides", "dilation"), (1,) * rank),
        "padding": "valid",
        "groups": 1,
        **{name: given[name] for name in ("filters", "use_bias")},
        **_of_kernel(given, "pointwise"),
        **{name: value for name, value in given.items() if name.startswith(("bias_", "activity_"))},
    }
    depthwise = info.model_copy(update={"settings": first, "outputs": shapes})
    pointwise = info.model_copy(update={"settings": second, "inputs": shapes})
    return [
        Item(depthwise, f"depthwise_{kind}", item.framework, item.padded, part=True),
        Item(pointwise, kind, item.framework, part=True),
    ]


def attention_parts(item: Item) -> list[Item]:
    """Split an attention into the layers that other models write it as: projections, softmax, projection."""
    info, given = item.info, item.info.settings
    if item.kind != "attention":
        return [item]
    shared = {name: v for name, v in given.items() if name == "trainable" or name.endswith("_regularizer")}
    shared |= {name: given[name] for name in ("bias_initializer",) if name in given}
    inner = int(str(given["heads"])) * int(str(given["head_size"]))
    last = info.outputs[0][-1:] if info.outputs else ()

    def dense(units: Shape, kernel: str, bias: str) -> Item:
        settings = {**shared, **dict(zip(("units",), units, strict=False)), "use_bias": given[bias]}
        settings |= {"kernel_initializer": given[kernel]} if kernel in given else {}
        shapes = tuple((*shape[:-1], *units) for shape in info.outputs[:1])
        return Item(
            info.model_copy(update={"settings": settings, "outputs": shapes}),
            "dense",
            item.framework,
            part=True,
        )

    softmax = info.model_copy(update={"settings": {"function": "softmax", "axis": -1}, "outputs": ()})
    return [
        *[dense((inner,), "kernel_initializer", "use_bias") for _ in range(3)],
        Item(softmax, "activation", item.framework, part=True),
        dense(last, "output_kernel_initializer", "output_bias"),
    ]


def _projection(item: Item) -> Item:
    """A product whose kernel's axes are in its output, as (batch, ..., heads, size), is a dense layer."""
    equation, outputs = str(item.info.settings.get("equation", "")), item.info.outputs
    both, _, made = equation.replace("...", "").partition("->")
    given, _, kernel = both.partition(",")
    new = [letter for letter in kernel if letter in made and letter not in given]
    if not outputs or not new or any(letter in made for letter in set(kernel) - set(new)):
        return item
    sizes = [outputs[0][made.index(letter) - len(made)] or 0 for letter in new]
    settings = {name: value for name, value in item.info.settings.items() if name != "equation"}
    info = item.info.model_copy(update={"settings": {**settings, "units": math.prod(sizes)}})
    return Item(info, "dense", item.framework)


def _of_kernel(given: Mapping[str, Setting], which: str) -> Settings:
    """The initialiser and the penalty of one of two kernels, as of a layer that has one."""
    found = {"kernel_initializer": given.get(f"{which}_initializer")}
    if f"{which}_regularizer" in given:
        found["kernel_regularizer"] = given[f"{which}_regularizer"]
    return found


def _simpler(item: Item) -> Item:
    """An average over one window that is the whole image is a global one; a product may be a dense layer."""
    if item.kind == "einsum_dense":
        return _projection(item)
    if item.kind.startswith("average_pool") and item.info.outputs:
        before, after = (item.sides(shapes, item.rank) for shapes in (item.info.inputs, item.info.outputs))
        if before == item.info.settings["size"] and after is not None and set(after) == {1}:
            return Item(item.info, "global_average_pool", item.framework)
    return item


def effective(item: Item, other: Item) -> Settings:
    """The settings of a layer that it can be compared by with another of its kind."""
    found = dict(item.info.settings)
    if item.kind.endswith("_transpose"):
        found["cropping"] = _cropping(item)
        found.pop("padding", None)
    elif item.rank and "padding" in found:
        # Windows that differ reach otherwise in any case.
        alike = all(found.get(name) == other.info.settings.get(name) for name in _WINDOW)
        found["padding"] = _padding(item, reached=alike)
        if _pads_by_itself(item):
            del found["padding"]
    if item.kind.startswith("max_pool"):
        found["padding_values"] = "zeros" if item.padded and not item.positive else "lowest"
    if item.kind.startswith("average_pool") and item.padded:
        found["count_padding"] = True
    if item.inside_attention or other.inside_attention:
        found.pop("axis", None)  # over the keys
    if "axis" in found:
        places = [_place(one) for one in (item, other)]
        same = item.info.inputs[:1] == other.info.inputs[:1] and places[0] == places[1]
        found["axis"] = places[0] if same else _axis(item, found["axis"])
    if "order" in found and item.info.inputs:
        found["shape"] = tuple(side or -1 for side in item.info.inputs[0][1:])
    return found


def compared(kind: str, name: str, keras: Mapping[str, Setting], torch: Mapping[str, Setting]) -> bool:
    """Whether a setting can make a difference, given the others."""
    both = (keras, torch)
    if name in ("count_padding", "padding_values"):
        return any(_adds_cells(one.get("padding")) for one in both)
    if name == "frozen_statistics":
        return any(one.get("trainable") is False for one in both)
    if name in ("running_variance", "moving_mean_initializer", "moving_variance_initializer"):
        return all(one.get("statistics") == "moving" for one in both)
    if _SWITCH.get(name) in keras:
        return all(one.get(_SWITCH[name]) for one in both)
    if kind == "activation" and name != "function":
        return keras.get("function") == torch.get("function")
    if kind == "flatten" and name == "order":
        # Where both are given the same axes in the same order, one side has permuted them before.
        shapes = [one.get("shape") for one in both]
        informative = isinstance(shapes[0], tuple) and shapes[0][0] != shapes[0][-1]
        return not informative or shapes[0] != shapes[1]
    return True


def _adds_cells(padding: Setting) -> bool:
    if isinstance(padding, tuple):
        return any(side > 0 for side in padding)
    return padding not in ("valid", None)


def _numbers(value: Setting, rank: int) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (1,) * rank


def _padding(item: Item, reached: bool) -> Setting:
    """(before, after) of each axis, with `reached` of the cells that windows reach; as given where not known."""
    settings, rank = item.info.settings, item.rank
    declared = settings["padding"]
    sides = item.sides(item.info.inputs, rank)
    windows = _numbers(settings.get("kernel_size", settings.get("size")), rank)
    strides, dilations = _numbers(settings["strides"], rank), _numbers(settings.get("dilation"), rank)
    extra = item.padded or (0,) * (2 * rank)
    result: list[int] = []
    for axis in range(rank):
        window, stride = dilated(windows[axis], dilations[axis]), strides[axis]
        side = None if sides is None else sides[axis]
        if isinstance(declared, tuple):
            before, after = declared[2 * axis], declared[2 * axis + 1]
        elif declared == "valid":
            before, after = 0, 0
        elif declared == "causal":
            before, after = window - 1, 0
        elif side is not None or stride == 1:
            before, after = same_pads(side or 1, window, stride)
        else:
            return declared
        if side is not None and reached:
            after = _reached(side, before, after, window, stride, bool(settings.get("ceil_mode")))
        result += [before + extra[2 * axis], after + extra[2 * axis + 1]]
    return tuple(result)


def _reached(side: int, before: int, after: int, window: int, stride: int, ceil_mode: bool) -> int:
    """Cells after an axis that its last window covers; below zero where it leaves out as many of the axis's own."""
    room = side + before + after - window
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= side + before:
        count -= 1
    return (count - 1) * stride + window - side - before


def _pads_by_itself(item: Item) -> bool:
    """Whether a layer gives more or fewer windows than its declared padding makes, as one that pads in its own call does."""
    if not item.info.overridden or item.kind not in _CONVOLUTIONS:
        return False
    before, after = (item.sides(shapes, item.rank) for shapes in (item.info.inputs, item.info.outputs))
    if before is None or after is None:
        return False
    declared, strides = item.info.settings["padding"], item.info.settings["strides"]
    windows = _numbers(item.info.settings["kernel_size"], item.rank)
    dilations = _numbers(item.info.settings.get("dilation"), item.rank)
    for axis, (side, stride) in enumerate(zip(before, _numbers(strides, item.rank), strict=True)):
        if isinstance(declared, tuple):
            added = declared[2 * axis] + declared[2 * axis + 1]
        elif declared == "valid":
            added = 0
        else:
            continue
        if (side + added - dilated(windows[axis], dilations[axis])) // stride + 1 != after[axis]:
            return True
    return False


def _cropping(item: Item) -> Setting:
    """(before, after) of each axis, as `Conv1DTranspose.crops` says it."""
    settings, rank = item.info.settings, item.rank
    declared, extra = settings["padding"], settings.get("output_padding")
    result: list[int] = []
    for axis in range(rank):
        layer = Conv1DTranspose.parse(
            {
                "filters": 1,
                "kernel_size": _numbers(settings["kernel_size"], rank)[axis],
                "strides": _numbers(settings["strides"], rank)[axis],
                "dilation": _numbers(settings.get("dilation"), rank)[axis],
                "padding": declared[2 * axis] if isinstance(declared, tuple) else declared,
                "output_padding": extra[axis] if isinstance(extra, tuple) else None,
            }
        )
        result += layer.crops()[0]
    return tuple(result)


def _place(item: Item) -> Setting:
    """An axis by its number from the front; as it is where the rank is not known."""
    axis, shapes = item.info.settings.get("axis"), item.info.inputs
    return axis % len(shapes[0]) if isinstance(axis, int) and shapes else axis


def _axis(item: Item, axis: Setting) -> Setting:
    """'features' where it is the axis of the features of an image, else its number from the front."""
    shapes = item.info.inputs
    if not isinstance(axis, int) or not shapes:
        return axis
    rank = len(shapes[0])
    place = axis % rank
    features = 1 if item.framework == "torch" else rank - 1
    return "features" if rank >= 4 and place == features else place


def sizes_alike(left: Item, right: Item) -> bool:
    """Whether both gave as many numbers of the same axes, in any order."""
    if not left.info.outputs or not right.info.outputs:
        return False
    one, other = left.info.outputs[0], right.info.outputs[0]
    if None in one or None in other:
        return len(one) == len(other)
    first, second = ([side or 1 for side in shape if side != 1] for shape in (one, other))
    return sorted(first) == sorted(second) or math.prod(first) == math.prod(second)
