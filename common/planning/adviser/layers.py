"""What each layer keeps for its backward pass, as the operations of our PyTorch layers do.

One function a spec class: (tape, node, input) -> output. TensorFlow's layers keep much the same tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from parity.common.planning.adviser.tape import Tape, Value
from parity.common.spec import Node, layers
from parity.common.spec.layers.convolution import Convolution
from parity.common.spec.layers.pooling import Pool

Rule = Callable[[Tape, Node, Value], Value]
_RULES: dict[type, Rule] = {}


def rule(*kinds: type) -> Callable[[Rule], Rule]:
    """Make a function the rule of some layers."""

    def take(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(kinds, function))
        return function

    return take


def record(tape: Tape, node: Node, x: Value) -> Value:
    """Record a layer, its children included."""
    return _RULES[type(node.spec)](tape, node, x)


def known(kind: type) -> bool:
    """Whether a layer has a rule."""
    return kind in _RULES


def own_bytes(tape: Tape, node: Node) -> int:
    """Of the gradients of a layer's own parameters."""
    return sum(math.prod(p.shape) for p in node.parameters if p.trainable) * tape.itemsize


def in_order(tape: Tape, x: Value) -> Value:
    """x, or a copy whose elements lie in the order of its shape."""
    return x if x.dense else tape.copied(x)


def product(
    tape: Tape, x: Value, shape: layers.Shape, kernel: int, bias: int = 0, dense: bool = True
) -> Value:
    """x times a kernel of some elements: keeps x, or its copy in the low type and the kernel's."""
    y = tape.new(shape, dense=dense)
    parameters = (kernel + bias) * tape.itemsize
    low = tape.low_itemsize
    if low is None:
        return tape.apply(x, y, x, parameters=parameters)
    # The gradient in the low type, and for the kernel's gradient both operands wide again.
    wide = tape.bytes_of(x.shape) + tape.bytes_of(shape)
    return tape.apply(
        x,
        y,
        tape.kept(x.shape, low),
        tape.fixed(kernel * low),
        parameters=parameters,
        scratch=wide + tape.bytes_of(shape, low),
        forward_scratch=tape.bytes_of(shape, low),
    )


def elementwise(tape: Tape, x: Value, keeps: str, extra: tuple[int, ...] = ()) -> Value:
    """A function of each element that keeps its `input`, its `output`, `both` or `nothing`."""
    y = tape.new(x.shape, dense=x.dense)
    saved = {"input": (x,), "output": (y,), "both": (x, y), "nothing": ()}[keeps]
    return tape.apply(x, y, *saved, *(tape.kept(x.shape, size) for size in extra))


def masked(tape: Tape, x: Value, mask_shape: layers.Shape) -> Value:
    """x times a mask; the mask is kept, x is not."""
    y, mask = tape.new(x.shape, dense=x.dense), tape.kept(mask_shape)
    # Random words are put together from quarters, before there is a mask or a result.
    words = 2 * tape.bytes_of(mask_shape, 8)
    return tape.apply(x, y, mask, forward_scratch=max(words - mask.bytes - y.storage.bytes, 0))


# Containers.


def chain(tape: Tape, children: tuple[Node, ...], x: Value) -> Value:
    """Children one after another; those that the tape checkpoints keep their input alone."""
    for child in children:
        first, given = len(tape.operations), x
        x = record(tape, child, x)
        if child.path in tape.checkpoints:
            tape.checkpointed(first, given)
    return x


@rule(layers.Sequential, layers.Repeat)
def _sequential(tape: Tape, node: Node, x: Value) -> Value:
    return chain(tape, node.children, x)


@rule(layers.Residual)
def _residual(tape: Tape, node: Node, x: Value) -> Value:
    y = chain(tape, node.children, x)
    if node.spec.drop_rate:  # type: ignore[attr-defined]
        y = masked(tape, y, tuple(1 for _ in y.shape))
    return tape.apply((x, y), tape.new(x.shape), passes=True)


@rule(layers.Identity)
def _identity(tape: Tape, node: Node, x: Value) -> Value:
    return x


@rule(layers.Add)
def _add(tape: Tape, node: Node, x: Value) -> Value:
    first, *others = (chain(tape, (child,), x) for child in node.children)
    for other in others:
        first = tape.apply((first, other), tape.new(first.shape), passes=True)
    return first


@rule(layers.Concatenate)
def _concatenate(tape: Tape, node: Node, x: Value) -> Value:
    branches = tuple(chain(tape, (child,), x) for child in node.children)
    return tape.apply(branches, tape.new(node.output_shape))


# Products and convolutions.


@rule(layers.Dense)
def _dense_layer(tape: Tape, node: Node, x: Value) -> Value:
    # A matrix may have any strides, what has more axes is flattened into one.
    x = x if len(x.shape) == 1 else in_order(tape, x)
    units, features = node.output_shape[-1], x.shape[-1]
    bias = units if node.spec.use_bias else 0  # type: ignore[attr-defined]
    return product(tape, x, node.output_shape, features * units, bias)


def _padded(tape: Tape, spec: Convolution | Pool, x: Value) -> Value:
    pads = spec.pads(x.shape)
    sides = (side + sum(pad) for side, pad in zip(x.shape, pads, strict=False))
    return tape.apply(x, tape.new((*sides, x.shape[-1]), dense=x.dense))


@rule(layers.Conv2D, layers.Conv1D, layers.DepthwiseConv2D)
def _convolution(tape: Tape, node: Node, x: Value) -> Value:
    spec = node.spec
    assert isinstance(spec, Convolution)
    if any(before != after for before, after in spec.pads(x.shape)):
        x = _padded(tape, spec, x)
    kernel, *bias = (math.prod(p.shape) for p in node.parameters)
    # Kernels for sequences know no layout with the channels last.
    return product(tape, x, node.output_shape, kernel, sum(bias), dense=spec.rank == 2)


@rule(layers.SeparableConv2D)
def _separable(tape: Tape, node: Node, x: Value) -> Value:
    spec = node.spec
    assert isinstance(spec, layers.SeparableConv2D)
    if any(before != after for before, after in spec.pads(x.shape)):
        x = _padded(tape, spec, x)
    depthwise, pointwise, *bias = (math.prod(p.shape) for p in node.parameters)
    between = (*node.output_shape[:-1], node.input_shape[-1] * spec.depth_multiplier)
    x = product(tape, x, between, depthwise)
    return product(tape, x, node.output_shape, pointwise, sum(bias))


@rule(layers.Conv2DTranspose, layers.Conv1DTranspose)
def _transposed(tape: Tape, node: Node, x: Value) -> Value:
    kernel, *bias = (math.prod(p.shape) for p in node.parameters)
    return product(tape, x, node.output_shape, kernel, sum(bias), dense=len(node.output_shape) == 3)


# Elementwise functions and changes of shape.

_KEEPS = {
    "relu": "output",
    "tanh": "output",
    "sigmoid": "output",
    "softmax": "output",
    "log_softmax": "output",
}


@rule(layers.Activation)
def _activation(tape: Tape, node: Node, x: Value) -> Value:
    function = node.spec.function  # type: ignore[attr-defined]
    if function == "quick_gelu":
        # x times a sigmoid of which the result is kept.
        return elementwise(tape, x, "input", (tape.itemsize,))
    return elementwise(tape, x, _KEEPS.get(function, "input"))


@rule(layers.PReLU)
def _prelu(tape: Tape, node: Node, x: Value) -> Value:
    # relu(x) and relu(-x) are both kept.
    y = tape.new(x.shape, dense=x.dense)
    halves = (tape.kept(x.shape), tape.kept(x.shape))
    return tape.apply(x, y, *halves, parameters=own_bytes(tape, node), scratch=tape.bytes_of(x.shape))


@rule(layers.Flatten)
def _flatten(tape: Tape, node: Node, x: Value) -> Value:
    swapped = node.spec.order == "chw" and len(x.shape) > 1  # type: ignore[attr-defined]
    spatial = math.prod(x.shape[:-1])
    # Channels before places: a copy, unless there is one place or one channel, or they lie so already.
    moved = swapped and spatial > 1 and x.shape[-1] > 1
    if moved == x.dense:
        return tape.copied(x, node.output_shape)
    return tape.view(x, node.output_shape)


@rule(layers.Reshape)
def _reshape(tape: Tape, node: Node, x: Value) -> Value:
    return tape.view(x, node.output_shape) if x.dense else tape.copied(x, node.output_shape)


@rule(layers.Permute)
def _permute(tape: Tape, node: Node, x: Value) -> Value:
    return tape.view(x, node.output_shape, dense=False)


@rule(layers.Slice)
def _slice(tape: Tape, node: Node, x: Value) -> Value:
    return tape.part(x, node.output_shape)


@rule(layers.ActivityPenalty)
def _activity_penalty(tape: Tape, node: Node, x: Value) -> Value:
    return tape.apply(x, x, x, scratch=2 * tape.bytes_of(x.shape))


@rule(layers.ZeroPad2D, layers.UpSampling2D, layers.Resize)
def _enlarged(tape: Tape, node: Node, x: Value) -> Value:
    return tape.apply(x, tape.new(node.output_shape))


@rule(layers.Patchify)
def _patchify(tape: Tape, node: Node, x: Value) -> Value:
    return tape.copied(x, node.output_shape)


# Pooling.


@rule(layers.MaxPool2D, layers.MaxPool1D)
def _max_pool(tape: Tape, node: Node, x: Value) -> Value:
    spec = node.spec
    assert isinstance(spec, Pool)
    pads = spec.pads(x.shape)
    own = all(a == b and 2 * a <= k for (a, b), k in zip(pads, spec.window(), strict=True))
    if not own:
        x = _padded(tape, spec, x)
    indices = tape.kept(node.output_shape, 8)
    return tape.apply(x, tape.new(node.output_shape, dense=spec.rank == 2), x, indices)


@rule(layers.AveragePool2D, layers.AveragePool1D)
def _average_pool(tape: Tape, node: Node, x: Value) -> Value:
    spec = node.spec
    assert isinstance(spec, Pool)
    if any(map(any, spec.pads(x.shape))):
        x = _padded(tape, spec, x)
    return tape.apply(x, tape.new(node.output_shape, dense=spec.rank == 2), x)


@rule(layers.GlobalAveragePool)
def _global_average(tape: Tape, node: Node, x: Value) -> Value:
    return tape.apply(x, tape.new(node.output_shape))


@rule(layers.GlobalMaxPool)
def _global_max(tape: Tape, node: Node, x: Value) -> Value:
    y = tape.new(node.output_shape)
    return tape.apply(x, y, x, y, scratch=tape.bytes_of(x.shape))


# Normalisations.


@rule(layers.BatchNorm)
def _batch_norm(tape: Tape, node: Node, x: Value) -> Value:
    spec, channels = node.spec, x.shape[-1]
    assert isinstance(spec, layers.BatchNorm)
    x, size = in_order(tape, x), tape.bytes_of(x.shape)
    if spec.uses_batch and (tape.alone or spec.statistics == "per_replica") and tape.itemsize < 8:
        # The framework's kernel, which keeps the batch's statistics, and the moving ones that it is given.
        given = 2 if spec.running_variance == "biased" else 0
        statistics = tape.fixed((2 + given) * channels * tape.itemsize)
        return tape.apply(x, tape.new(x.shape), x, statistics, parameters=own_bytes(tape, node))
    if spec.uses_batch:
        y = tape.new(x.shape)
        statistics = tape.fixed((channels + 1) * tape.itemsize)
        y = tape.apply(x, y, y, statistics, forward_scratch=size)
    else:
        y = tape.apply(x, tape.new(x.shape), tape.fixed(channels * tape.itemsize))
    if not (spec.scale or spec.center):
        return y
    keeps = (y,) if spec.scale and not spec.frozen else ()
    # Of both at once (addcmul) the gradient is a product of three factors.
    scratch = 2 * size if spec.scale and spec.center else size
    return tape.apply(y, tape.new(x.shape), *keeps, parameters=own_bytes(tape, node), scratch=scratch)


@rule(layers.LayerNorm)
def _layer_norm(tape: Tape, node: Node, x: Value) -> Value:
    x = in_order(tape, x)
    rows = x.shape[: len(x.shape) - node.spec.axes]  # type: ignore[attr-defined]
    mean, deviation = tape.kept(rows), tape.kept(rows)
    return tape.apply(x, tape.new(x.shape), x, mean, deviation, parameters=own_bytes(tape, node))


@rule(layers.RMSNorm)
def _rms_norm(tape: Tape, node: Node, x: Value) -> Value:
    x = in_order(tape, x)
    rows = x.shape[: len(x.shape) - node.spec.axes]  # type: ignore[attr-defined]
    return tape.apply(x, tape.new(x.shape), x, tape.kept(rows), parameters=own_bytes(tape, node))


@rule(layers.GroupNorm, layers.InstanceNorm)
def _group_norm(tape: Tape, node: Node, x: Value) -> Value:
    groups = getattr(node.spec, "groups", x.shape[-1])
    image = len(x.shape) == 3
    if not image and x.dense:
        x = tape.copied(x)
    mean, deviation = tape.kept((groups,)), tape.kept((groups,))
    y = tape.new(x.shape, dense=image)
    return tape.apply(x, y, x, mean, deviation, parameters=own_bytes(tape, node))


# Random masks.


@rule(layers.Dropout)
def _dropout(tape: Tape, node: Node, x: Value) -> Value:
    spec = node.spec
    assert isinstance(spec, layers.Dropout)
    return masked(tape, x, spec.mask_shape(x.shape)) if spec.rate else x
