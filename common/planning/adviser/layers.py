"""What each layer keeps for its backward pass, as the operations of our PyTorch layers do.

A rule for each spec class: (tape, node, its spec, input) -> output. TensorFlow's layers keep much the same tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from parity.common.base.registry import Registry
from parity.common.planning.adviser.tape import Storage, Tape, Value
from parity.common.spec import Node, layers
from parity.common.spec.layers.convolution import Convolution
from parity.common.spec.layers.windows import Windowed

Rule = Callable[[Tape, Node, Any, Value], Value]
_RULES: Registry[Rule] = Registry()
rule = _RULES.register


def record(tape: Tape, node: Node, x: Value) -> Value:
    """Record a layer, its children included."""
    return _RULES[type(node.spec)](tape, node, node.spec, x)


def one_operation(*keeps: str, passes: bool = False, scratch: int = 0) -> Rule:
    """A rule of layers that are one operation, which keeps its `input`, its `output` or both.

    passes: as of `Tape.apply`. scratch: bytes in the backward pass, as multiples of the input's.
    """

    def apply(tape: Tape, node: Node, spec: Any, x: Value) -> Value:
        y = tape.new(node.output_shape)
        saved = [{"input": x, "output": y}[name] for name in keeps]
        more = scratch * tape.bytes_of(x.shape)
        return tape.apply(x, y, *saved, parameters=own_bytes(tape, node), passes=passes, scratch=more)

    return apply


def own_bytes(tape: Tape, node: Node) -> int:
    """Of the gradients of a layer's own parameters."""
    return node.trained * tape.itemsize


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
        Storage(kernel * low),
        parameters=parameters,
        scratch=wide + tape.bytes_of(shape, low),
        forward_scratch=tape.bytes_of(shape, low),
    )


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


rule(layers.Sequential, layers.Repeat)(lambda tape, node, spec, x: chain(tape, node.children, x))


@rule(layers.Residual)
def _residual(tape: Tape, node: Node, spec: layers.Residual, x: Value) -> Value:
    y = chain(tape, node.children, x)
    if spec.drop_rate:
        y = masked(tape, y, tuple(1 for _ in y.shape))
    return tape.apply((x, y), tape.new(x.shape), passes=True)


@rule(layers.Add)
def _add(tape: Tape, node: Node, spec: Any, x: Value) -> Value:
    first, *others = (chain(tape, (child,), x) for child in node.children)
    for other in others:
        first = tape.apply((first, other), tape.new(first.shape), passes=True)
    return first


@rule(layers.Concatenate)
def _concatenate(tape: Tape, node: Node, spec: Any, x: Value) -> Value:
    branches = tuple(chain(tape, (child,), x) for child in node.children)
    return tape.apply(branches, tape.new(node.output_shape))


# Products and convolutions.


@rule(layers.Dense)
def _dense_layer(tape: Tape, node: Node, spec: layers.Dense, x: Value) -> Value:
    # A matrix may have any strides, what has more axes is flattened into one.
    x = x if len(x.shape) == 1 else in_order(tape, x)
    units = node.output_shape[-1]
    return product(tape, x, node.output_shape, x.shape[-1] * units, units if spec.use_bias else 0)


def _padded(tape: Tape, spec: Windowed, x: Value) -> Value:
    sides = (side + sum(pad) for side, pad in zip(x.shape, spec.pads(x.shape), strict=False))
    return tape.apply(x, tape.new((*sides, x.shape[-1]), dense=x.dense))


@rule(
    layers.Conv2D,
    layers.Conv1D,
    layers.DepthwiseConv2D,
    layers.SeparableConv2D,
    layers.Conv2DTranspose,
    layers.Conv1DTranspose,
)
def _convolution(tape: Tape, node: Node, spec: Windowed, x: Value) -> Value:
    if isinstance(spec, Convolution) and any(before != after for before, after in spec.pads(x.shape)):
        x = _padded(tape, spec, x)
    kernel, *rest = (math.prod(p.shape) for p in node.parameters)
    if isinstance(spec, layers.SeparableConv2D):
        between = (*node.output_shape[:-1], node.input_shape[-1] * spec.depth_multiplier)
        x = product(tape, x, between, kernel)
        kernel, *rest = rest
    # Kernels for sequences know no layout with the channels last.
    return product(tape, x, node.output_shape, kernel, sum(rest), dense=spec.rank == 2)


# Elementwise functions and changes of shape.

_KEEP_THEIR_OUTPUT = ("relu", "tanh", "sigmoid", "softmax", "log_softmax")


@rule(layers.Activation)
def _activation(tape: Tape, node: Node, spec: layers.Activation, x: Value) -> Value:
    y = tape.new(x.shape, dense=x.dense)
    # x times a sigmoid of which the result is kept.
    more = [tape.kept(x.shape)] if spec.function == "quick_gelu" else []
    return tape.apply(x, y, y if spec.function in _KEEP_THEIR_OUTPUT else x, *more)


@rule(layers.PReLU)
def _prelu(tape: Tape, node: Node, spec: Any, x: Value) -> Value:
    # relu(x) and relu(-x) are both kept.
    y = tape.new(x.shape, dense=x.dense)
    halves = (tape.kept(x.shape), tape.kept(x.shape))
    return tape.apply(x, y, *halves, parameters=own_bytes(tape, node), scratch=tape.bytes_of(x.shape))


@rule(layers.Flatten)
def _flatten(tape: Tape, node: Node, spec: layers.Flatten, x: Value) -> Value:
    swapped = spec.order == "chw" and len(x.shape) > 1
    # Channels before places: a copy, unless there is one place or one channel, or they lie so already.
    moved = swapped and math.prod(x.shape[:-1]) > 1 and x.shape[-1] > 1
    return (tape.copied if moved == x.dense else tape.view)(x, node.output_shape)


rule(layers.Reshape)(
    lambda tape, node, spec, x: (tape.view if x.dense else tape.copied)(x, node.output_shape)
)
rule(layers.ActivityPenalty)(
    lambda tape, node, spec, x: tape.apply(x, x, x, scratch=2 * tape.bytes_of(x.shape))
)
rule(layers.Identity)(lambda tape, node, spec, x: x)
rule(layers.Permute)(lambda tape, node, spec, x: tape.view(x, node.output_shape, dense=False))
rule(layers.Slice, layers.TakeToken)(lambda tape, node, spec, x: tape.part(x, node.output_shape))
rule(layers.Patchify)(lambda tape, node, spec, x: tape.copied(x, node.output_shape))
rule(layers.ZeroPad2D, layers.UpSampling2D, layers.Resize, layers.GlobalAveragePool)(one_operation())
rule(layers.GlobalMaxPool)(one_operation("input", "output", scratch=1))
rule(layers.ClassToken)(one_operation())
rule(layers.PositionEmbedding, layers.SinusoidalPositions)(one_operation(passes=True))


# Pooling.


@rule(layers.MaxPool2D, layers.MaxPool1D, layers.AveragePool2D, layers.AveragePool1D)
def _pool(tape: Tape, node: Node, spec: Windowed, x: Value) -> Value:
    largest = isinstance(spec, layers.MaxPool2D | layers.MaxPool1D)
    for (before, after), size in zip(spec.pads(x.shape), spec.window(), strict=True):
        # Kernels of maxima pad by themselves, up to half a window and on both sides alike.
        if before != after or before > (size / 2 if largest else 0):
            x = _padded(tape, spec, x)
            break
    indices = [tape.kept(node.output_shape, 8)] if largest else []
    return tape.apply(x, tape.new(node.output_shape, dense=spec.rank == 2), x, *indices)


# Normalisations.


@rule(layers.BatchNorm)
def _batch_norm(tape: Tape, node: Node, spec: layers.BatchNorm, x: Value) -> Value:
    x, channels, size = in_order(tape, x), x.shape[-1], tape.bytes_of(x.shape)
    if spec.uses_batch and (tape.alone or spec.statistics == "per_replica") and tape.itemsize < 8:
        # The framework's kernel, which keeps the batch's statistics, and the moving ones that it is given.
        given = 2 if spec.running_variance == "biased" else 0
        statistics = Storage((2 + given) * channels * tape.itemsize)
        return tape.apply(x, tape.new(x.shape), x, statistics, parameters=own_bytes(tape, node))
    y = tape.new(x.shape)
    if spec.uses_batch:
        y = tape.apply(x, y, y, Storage((channels + 1) * tape.itemsize), forward_scratch=size)
    else:
        y = tape.apply(x, y, Storage(channels * tape.itemsize))
    if not (spec.scale or spec.center):
        return y
    keeps = (y,) if spec.scale and not spec.frozen else ()
    # Of both at once (addcmul) the gradient is a product of three factors.
    scratch = 2 * size if spec.scale and spec.center else size
    return tape.apply(y, tape.new(x.shape), *keeps, parameters=own_bytes(tape, node), scratch=scratch)


@rule(layers.LayerNorm, layers.RMSNorm)
def _row_norm(tape: Tape, node: Node, spec: layers.LayerNorm | layers.RMSNorm, x: Value) -> Value:
    x = in_order(tape, x)
    rows = x.shape[: len(x.shape) - spec.axes]
    # The deviation of each row, and its mean where that is taken off.
    statistics = [tape.kept(rows) for _ in range(2 if isinstance(spec, layers.LayerNorm) else 1)]
    return tape.apply(x, tape.new(x.shape), x, *statistics, parameters=own_bytes(tape, node))


@rule(layers.GroupNorm, layers.InstanceNorm)
def _group_norm(tape: Tape, node: Node, spec: layers.GroupNorm | layers.InstanceNorm, x: Value) -> Value:
    groups = getattr(spec, "groups", x.shape[-1])
    image = len(x.shape) == 3
    x = tape.copied(x) if x.dense and not image else x
    mean, deviation = tape.kept((groups,)), tape.kept((groups,))
    y = tape.new(x.shape, dense=image)
    return tape.apply(x, y, x, mean, deviation, parameters=own_bytes(tape, node))


# Random masks.


@rule(layers.Dropout)
def _dropout(tape: Tape, node: Node, spec: layers.Dropout, x: Value) -> Value:
    return masked(tape, x, spec.mask_shape(x.shape)) if spec.rate else x
