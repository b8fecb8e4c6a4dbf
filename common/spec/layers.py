"""Layer specs: one frozen class a layer, with its shapes, its parameters and its conventions.

A new layer is one class here and one function in each `layers.py` of tf_impl and torch_impl.
Shapes leave out the batch dimension; images are HWC, sequences (tokens, features).
Canonical layouts are Keras's: convolution kernels HWIO, dense kernels (in, out).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

from pydantic import Field

from common.errors import SpecError
from common.spec.base import Number, PositiveInt, Spec

Shape = tuple[int, ...]
Initializer = Literal[
    "zeros", "ones", "glorot_uniform", "uniform_fan_in", "normal_0.02", "normal_1", "uniform_0.05"
]


@dataclass(frozen=True)
class ParameterSpec:
    """One tensor of a layer in canonical layout."""

    name: str
    shape: Shape
    initializer: Initializer
    fan_in: int = 1
    fan_out: int = 1
    trainable: bool = True
    # Why this tensor's gradient is zero up to rounding, whatever the data; None for all others.
    null_direction: str | None = None


@dataclass(frozen=True)
class Node:
    """A layer in its place in the tree: its canonical path, its shapes, its children."""

    path: str
    spec: LayerSpec
    input_shape: Shape
    output_shape: Shape
    children: tuple[Node, ...] = ()
    parameters: tuple[ParameterSpec, ...] = field(default=())


class LayerSpec(Spec):
    """Base of all layers. Subclasses set a literal `kind` and override the two shape methods."""

    known: ClassVar[list[type[LayerSpec]]] = []
    kind: str
    name: str | None = Field(None, pattern=r"^[a-z][a-z0-9_]*$", description="default: kind and a number")

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        LayerSpec.known.append(cls)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Shape after this layer; raises SpecError where the input does not fit."""
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        """The layer's own tensors, without those of its children."""
        return ()

    def node(self, path: str, input_shape: Shape) -> Node:
        """This layer placed at `path`."""
        return Node(path, self, input_shape, self.output_shape(input_shape), (), self.parameters(input_shape))

    def expect_rank(self, input_shape: Shape, rank: int, meaning: str) -> None:
        """Raise SpecError unless the input has `rank` dimensions."""
        if len(input_shape) != rank:
            raise SpecError(
                f"layer {self.name or self.kind}: expects {meaning}, received shape {input_shape}"
            )


class Dense(LayerSpec):
    """y = x @ kernel + bias over the last axis."""

    conventions = {
        "keras": {"kernel_initializer": "glorot_uniform", "bias_initializer": "zeros"},
        "torch": {"kernel_initializer": "uniform_fan_in", "bias_initializer": "uniform_fan_in"},
    }
    kind: Literal["dense"] = "dense"
    units: PositiveInt
    use_bias: bool = True
    kernel_initializer: Initializer | None = None
    bias_initializer: Initializer | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.units)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        fan_in = input_shape[-1]
        kernel = ParameterSpec(
            "kernel", (fan_in, self.units), self.kernel_initializer or "zeros", fan_in, self.units
        )
        bias = ParameterSpec("bias", (self.units,), self.bias_initializer or "zeros", fan_in, self.units)
        return (kernel, bias) if self.use_bias else (kernel,)


class Conv2D(LayerSpec):
    """Cross-correlation of an HWC image with an HWIO kernel.

    `padding: same` puts the odd pixel at the end, as TensorFlow does (DIFFERENCES row 33).
    """

    conventions = Dense.conventions
    kind: Literal["conv2d"] = "conv2d"
    filters: PositiveInt
    kernel_size: PositiveInt = 3
    strides: PositiveInt = 1
    padding: Literal["same", "valid"] = "same"
    use_bias: bool = True
    kernel_initializer: Initializer | None = None
    bias_initializer: Initializer | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        sides = []
        for side in input_shape[:2]:
            inside = side if self.padding == "same" else side - self.kernel_size + 1
            if inside < 1:
                raise SpecError(
                    f"layer {self.name or self.kind}: kernel_size {self.kernel_size} with padding 'valid'"
                    f" does not fit an input of side {side}"
                )
            sides.append(-(-inside // self.strides))
        return (sides[0], sides[1], self.filters)

    def same_padding(self, side: int) -> tuple[int, int]:
        """Pixels added (before, after) along an axis of length `side`."""
        if self.padding == "valid":
            return (0, 0)
        total = max(0, (-(-side // self.strides) - 1) * self.strides + self.kernel_size - side)
        return (total // 2, total - total // 2)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        window = self.kernel_size**2
        fan_in, fan_out = window * input_shape[-1], window * self.filters
        shape = (self.kernel_size, self.kernel_size, input_shape[-1], self.filters)
        kernel = ParameterSpec("kernel", shape, self.kernel_initializer or "zeros", fan_in, fan_out)
        bias = ParameterSpec("bias", (self.filters,), self.bias_initializer or "zeros", fan_in, fan_out)
        return (kernel, bias) if self.use_bias else (kernel,)


class BatchNorm(LayerSpec):
    """Batch normalisation over all axes but the last.

    moving = decay * moving + (1 - decay) * batch, so `decay` is Keras's momentum and one minus
    PyTorch's. `statistics: global` normalises with the statistics of the global batch, whatever
    the placement; `per_replica` makes the replica count part of the mathematics.
    """

    conventions = {
        "keras": {"decay": 0.99, "epsilon": 1e-3, "running_variance": "biased"},
        "torch": {"decay": 0.9, "epsilon": 1e-5, "running_variance": "unbiased"},
    }
    kind: Literal["batch_norm"] = "batch_norm"
    statistics: Literal["global", "per_replica"] = "global"
    decay: Number | None = Field(None, ge=0, lt=1)
    epsilon: Number | None = Field(None, gt=0)
    running_variance: Literal["biased", "unbiased"] | None = None

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        shape = (input_shape[-1],)
        return (
            ParameterSpec("gamma", shape, "ones"),
            ParameterSpec("beta", shape, "zeros"),
            ParameterSpec("moving_mean", shape, "zeros", trainable=False),
            ParameterSpec("moving_variance", shape, "ones", trainable=False),
        )


class LayerNorm(LayerSpec):
    """Normalisation over the last axis with the biased variance."""

    conventions = {"keras": {"epsilon": 1e-3}, "torch": {"epsilon": 1e-5}}
    kind: Literal["layer_norm"] = "layer_norm"
    epsilon: Number | None = Field(None, gt=0)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        shape = (input_shape[-1],)
        return (ParameterSpec("gamma", shape, "ones"), ParameterSpec("beta", shape, "zeros"))


class Activation(LayerSpec):
    """An elementwise function; `gelu` is the exact one, with the error function."""

    kind: Literal["activation"] = "activation"
    function: Literal["relu", "gelu", "tanh"]


class MaxPool2D(LayerSpec):
    """Maximum over non-overlapping windows; a rest at the edge is dropped."""

    kind: Literal["max_pool2d"] = "max_pool2d"
    size: PositiveInt = 2

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        height, width, channels = input_shape
        if min(height, width) < self.size:
            raise SpecError(
                f"layer {self.name or self.kind}: size {self.size} is larger than input {input_shape}"
            )
        return (height // self.size, width // self.size, channels)


class GlobalAveragePool(LayerSpec):
    """Mean over all axes between the batch and the features."""

    kind: Literal["global_average_pool"] = "global_average_pool"

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[-1:]


class Flatten(LayerSpec):
    """All axes but the batch into one, in HWC or CHW order (DIFFERENCES row 37)."""

    conventions = {"keras": {"order": "hwc"}, "torch": {"order": "chw"}}
    kind: Literal["flatten"] = "flatten"
    order: Literal["hwc", "chw"] | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)


class Patchify(LayerSpec):
    """An HWC image into (tokens, size*size*C): patches in row-major order, each flattened as HWC."""

    kind: Literal["patchify"] = "patchify"
    size: PositiveInt = 2

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        height, width, channels = input_shape
        if height % self.size or width % self.size:
            raise SpecError(
                f"layer {self.name or self.kind}: size {self.size} does not divide input {input_shape}"
            )
        return (height // self.size * (width // self.size), self.size**2 * channels)


class PositionEmbedding(LayerSpec):
    """Adds a learned vector to each token."""

    conventions = {"keras": {"initializer": "uniform_0.05"}, "torch": {"initializer": "normal_1"}}
    kind: Literal["position_embedding"] = "position_embedding"
    initializer: Initializer | None = None

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        return (ParameterSpec("embedding", input_shape, self.initializer or "zeros"),)


class SelfAttention(LayerSpec):
    """Multi-head softmax(q k^T / sqrt(head size)) v with four (features, features) projections."""

    conventions = Dense.conventions
    kind: Literal["self_attention"] = "self_attention"
    heads: PositiveInt
    use_bias: bool = True
    kernel_initializer: Initializer | None = None
    bias_initializer: Initializer | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        if input_shape[-1] % self.heads:
            raise SpecError(
                f"layer {self.name or self.kind}: heads {self.heads} does not divide {input_shape[-1]} features"
            )
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        width = input_shape[-1]
        result = []
        for part in ("query", "key", "value", "output"):
            kernel = self.kernel_initializer or "zeros"
            result.append(ParameterSpec(f"{part}_kernel", (width, width), kernel, width, width))
            if self.use_bias:
                reason = "softmax over keys is invariant to a key bias" if part == "key" else None
                bias = self.bias_initializer or "zeros"
                result.append(
                    ParameterSpec(f"{part}_bias", (width,), bias, width, width, null_direction=reason)
                )
        return tuple(result)


class Container(LayerSpec):
    """A layer made of layers, run in order."""

    layers: tuple[AnyLayer, ...] = Field(min_length=1)

    def node(self, path: str, input_shape: Shape) -> Node:
        children: list[Node] = []
        shape = input_shape
        for name, layer in zip(child_names(self.layers), self.layers, strict=True):
            child = layer.node(f"{path}/{name}" if path else name, shape)
            if isinstance(layer, BatchNorm) and children:
                children[-1] = _without_use_for_a_bias(children[-1])
            children.append(child)
            shape = child.output_shape
        self.check_children(input_shape, shape)
        return Node(path, self, input_shape, shape, tuple(children))

    def check_children(self, input_shape: Shape, inner_shape: Shape) -> None:
        """Raise SpecError where the children's output does not suit this container."""


class Sequential(Container):
    """Children one after another."""

    kind: Literal["sequential"] = "sequential"


class Residual(Container):
    """x + children(x)."""

    kind: Literal["residual"] = "residual"

    def check_children(self, input_shape: Shape, inner_shape: Shape) -> None:
        if inner_shape != input_shape:
            raise SpecError(
                f"layer {self.name or self.kind}: a residual must keep its shape; {input_shape} became {inner_shape}"
            )


def _without_use_for_a_bias(node: Node) -> Node:
    """The layer before a batch norm, its bias marked: the norm subtracts it again."""
    if not isinstance(node.spec, Dense | Conv2D):
        return node
    reason = "the batch norm that follows subtracts a bias again"
    parameters = tuple(replace(p, null_direction=reason) if p.name == "bias" else p for p in node.parameters)
    return replace(node, parameters=parameters)


def child_names(layers: tuple[LayerSpec, ...]) -> list[str]:
    """Names of siblings: the given ones, else kind, numbered where a kind comes more than once."""
    names = []
    for position, layer in enumerate(layers):
        alike = [i for i, other in enumerate(layers) if other.name is None and other.kind == layer.kind]
        number = f"_{alike.index(position) + 1}" if layer.name is None and len(alike) > 1 else ""
        names.append(layer.name or layer.kind + number)
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise SpecError(f"layers: the name {sorted(doubled)[0]!r} is used twice among siblings")
    return names


if TYPE_CHECKING:
    AnyLayer = LayerSpec
else:
    _kinds = [cls for cls in LayerSpec.known if cls is not Container]
    AnyLayer = Annotated[Union[tuple(_kinds)], Field(discriminator="kind")]  # noqa: UP007
    for _kind in [Container, *_kinds]:
        _kind.model_rebuild()
