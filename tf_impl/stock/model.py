"""ModelSpec -> a functional model of Keras's own layers and operations, for export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import keras
import numpy as np
from keras import ops

from parity.common.base.errors import CheckpointError
from parity.common.checkpoint.weights import Weights
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.common.state.canonical import State, canonical_name

Tensor = Any
Builder = Callable[["Build", Node, Tensor], Tensor]
_BUILDERS: dict[type, Builder] = {}


def stock_model(weights: Weights) -> keras.Model:
    """The model, with its weights. Keras's defaults are then of its precision.

    Raises:
        CheckpointError: names the first layer of which Keras has no counterpart with the same mathematics.
    """
    model, dtype = weights.spec.model, weights.spec.master_dtype
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    inputs = keras.Input(model.input_shape, dtype=weights.spec.input_dtype, name="inputs")
    kept = None if model.pad_id is None else ops.not_equal(inputs, model.pad_id)
    build = Build(weights.tensors, kept)
    return keras.Model(inputs, build(model.tree(), inputs), name=weights.spec.name)


@dataclass
class Build:
    """tensors: of the model by canonical name. kept: (batch, tokens), False where the input is padding."""

    tensors: State
    kept: Tensor = None
    made: list[str] = field(default_factory=list)

    def __call__(self, node: Node, x: Tensor) -> Tensor:
        """What a node makes of x."""
        if type(node.spec) not in _BUILDERS:
            raise missing(node)
        try:
            return _BUILDERS[type(node.spec)](self, node, x)
        except (ValueError, NotImplementedError, AttributeError) as error:
            if isinstance(error, AttributeError) and not isinstance(error.obj, ModuleType):
                raise  # a mistake in a builder; of a module, this Keras does not have it yet
            raise missing(node, " ".join(str(error).split())[:200]) from None

    def chain(self, children: tuple[Node, ...], x: Tensor) -> Tensor:
        """Children one after another."""
        for child in children:
            x = self(child, x)
        return x

    def own(self, node: Node) -> State:
        """A node's tensors by their names in the spec."""
        return {p.name: self.tensors[canonical_name(node.path, p)] for p in node.parameters}

    def put(
        self, layer: keras.layers.Layer, values: list[np.ndarray | None], x: Tensor, **given: Any
    ) -> Tensor:
        """Apply a layer, and give it its weights in Keras's order; those that are None it does not have."""
        y = layer(x, **given)
        layer.set_weights([value for value in values if value is not None])
        return y

    def put_named(self, layer: keras.layers.Layer, node: Node, x: Tensor, *names: str) -> Tensor:
        """`put` with a node's tensors of these names, as far as it has them."""
        own = self.own(node)
        return self.put(layer, [own.get(name) for name in names], x)


def register(*kinds: type) -> Callable[[Builder], Builder]:
    """Decorator: how nodes of these specs are made."""

    def take(builder: Builder) -> Builder:
        _BUILDERS.update(dict.fromkeys(kinds, builder))
        return builder

    return take


def missing(node: Node, why: str = "") -> CheckpointError:
    """For a layer that stock Keras has not."""
    return CheckpointError(
        f"layer {node.path} ({node.spec.kind}): Keras has no stock layer with the same mathematics"
        f"{f' ({why})' if why else ''}; load the run with parity.tf_impl.inference.load instead"
    )


def name_of(node: Node) -> str:
    """A layer's name in the model; of a path, where slashes are not allowed."""
    return node.path.replace("/", ".")


@register(spec.Sequential, spec.Repeat)
def _sequential(build: Build, node: Node, x: Tensor) -> Tensor:
    return build.chain(node.children, x)


@register(spec.Residual)
def _residual(build: Build, node: Node, x: Tensor) -> Tensor:
    return keras.layers.Add(name=name_of(node))([x, build.chain(node.children, x)])


@register(spec.Add)
def _add(build: Build, node: Node, x: Tensor) -> Tensor:
    return keras.layers.Add(name=name_of(node))([build(child, x) for child in node.children])


@register(spec.Concatenate)
def _concatenate(build: Build, node: Node, x: Tensor) -> Tensor:
    return keras.layers.Concatenate(name=name_of(node))([build(child, x) for child in node.children])


@register(spec.Identity, spec.ActivityPenalty)
def _identity(build: Build, node: Node, x: Tensor) -> Tensor:
    return x


@register(spec.Dropout)
def _dropout(build: Build, node: Node, x: Tensor) -> Tensor:
    kind: Any = keras.layers.Dropout
    if node.spec.whole == "channels":
        kind = {2: keras.layers.SpatialDropout1D, 3: keras.layers.SpatialDropout2D}.get(len(node.input_shape))
        if kind is None:
            return x
    return kind(node.spec.rate, name=name_of(node))(x)


@register(spec.Dense)
def _dense(build: Build, node: Node, x: Tensor) -> Tensor:
    layer = keras.layers.Dense(node.spec.units, use_bias=node.spec.use_bias, name=name_of(node))
    return build.put_named(layer, node, x, "kernel", "bias")


# Written out where Keras's own would pass a constant through float32.
_FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: 0.5 * x * (1.0 + ops.erf(x * 0.5**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + ops.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))),
    "quick_gelu": lambda x: x * ops.sigmoid(1.702 * x),
    "hard_swish": lambda x: x * ops.relu6(x + 3.0) / 6.0,
}


@register(spec.Activation)
def _activation(build: Build, node: Node, x: Tensor) -> Tensor:
    function = node.spec.function
    if function == "leaky_relu":
        return ops.maximum(x, 0.0) + node.spec.negative_slope * ops.minimum(x, 0.0)
    if function in _FORMULAS:
        return _FORMULAS[function](x)
    return keras.layers.Activation(function, name=name_of(node))(x)


@register(spec.PReLU)
def _prelu(build: Build, node: Node, x: Tensor) -> Tensor:
    shared = [] if node.spec.slope_per == "element" else list(range(1, len(node.input_shape)))
    alpha = build.own(node)["alpha"]
    shape = tuple(1 if axis + 1 in shared else side for axis, side in enumerate(node.input_shape))
    layer = keras.layers.PReLU(shared_axes=shared or None, name=name_of(node))
    return build.put(layer, [np.broadcast_to(alpha, shape)], x)


@register(spec.Flatten)
def _flatten(build: Build, node: Node, x: Tensor) -> Tensor:
    rank = len(node.input_shape)
    if node.spec.order == "chw" and rank > 1:
        x = keras.layers.Permute((rank, *range(1, rank)))(x)
    return keras.layers.Reshape(node.output_shape, name=name_of(node))(x)


@register(spec.Reshape)
def _reshape(build: Build, node: Node, x: Tensor) -> Tensor:
    return keras.layers.Reshape(node.output_shape, name=name_of(node))(x)


@register(spec.Permute)
def _permute(build: Build, node: Node, x: Tensor) -> Tensor:
    return keras.layers.Permute(node.spec.dims, name=name_of(node))(x)


@register(spec.Slice)
def _slice(build: Build, node: Node, x: Tensor) -> Tensor:
    return x[..., node.spec.start : node.spec.stop]


@register(spec.TakeToken)
def _take_token(build: Build, node: Node, x: Tensor) -> Tensor:
    return x[:, node.spec.index]


@register(spec.Patchify)
def _patchify(build: Build, node: Node, x: Tensor) -> Tensor:
    size = node.spec.size
    height, width, channels = node.input_shape
    x = keras.layers.Reshape((height // size, size, width // size, size, channels))(x)
    x = keras.layers.Permute((1, 3, 2, 4, 5))(x)
    return keras.layers.Reshape(node.output_shape, name=name_of(node))(x)


@register(spec.BatchNorm, spec.LayerNorm, spec.GroupNorm, spec.InstanceNorm)
def _norm(build: Build, node: Node, x: Tensor) -> Tensor:
    own, layer = build.own(node), node.spec
    common = {
        "epsilon": layer.epsilon,
        "center": "beta" in own,
        "scale": "gamma" in own,
        "name": name_of(node),
    }
    made: keras.layers.Layer
    if isinstance(layer, spec.BatchNorm):
        made = keras.layers.BatchNormalization(momentum=layer.decay, **common)
    elif isinstance(layer, spec.LayerNorm):
        made = keras.layers.LayerNormalization(axis=list(range(-layer.axes, 0)), **common)
    else:
        groups = layer.groups if isinstance(layer, spec.GroupNorm) else -1
        made = keras.layers.GroupNormalization(groups=groups, **common)
    return build.put_named(made, node, x, "gamma", "beta", "moving_mean", "moving_variance")


@register(spec.RMSNorm)
def _rms_norm(build: Build, node: Node, x: Tensor) -> Tensor:
    epsilon = node.spec.epsilon
    if epsilon == "machine":
        epsilon = float(np.finfo(keras.config.floatx()).eps)
    gamma = build.own(node).get("gamma")
    shape = node.input_shape[-node.spec.axes :]
    layer = keras.layers.RMSNormalization(
        axis=list(range(-node.spec.axes, 0)), epsilon=epsilon, name=name_of(node)
    )
    return build.put(layer, [np.ones(shape) if gamma is None else gamma], x)


@register(spec.Conv2D, spec.Conv1D, spec.DepthwiseConv2D, spec.SeparableConv2D)
def _convolution(build: Build, node: Node, x: Tensor) -> Tensor:
    layer = node.spec
    x, padding = _padded(node, x)
    common = _geometry(node, padding)
    made: keras.layers.Layer
    if isinstance(layer, spec.DepthwiseConv2D):
        made = keras.layers.DepthwiseConv2D(layer.kernel(), depth_multiplier=layer.depth_multiplier, **common)
    elif isinstance(layer, spec.SeparableConv2D):
        multiplier = layer.depth_multiplier
        made = keras.layers.SeparableConv2D(
            layer.filters, layer.kernel(), depth_multiplier=multiplier, **common
        )
    else:
        kind = keras.layers.Conv1D if layer.rank == 1 else keras.layers.Conv2D
        made = kind(layer.filters, layer.kernel(), groups=layer.groups, **common)
    return build.put_named(made, node, x, "depthwise_kernel", "pointwise_kernel", "kernel", "bias")


def _geometry(node: Node, padding: str) -> dict[str, Any]:
    """What all of Keras's convolutions are given."""
    return {
        "strides": node.spec.steps(),
        "padding": padding,
        "dilation_rate": node.spec.dilations(),
        "use_bias": node.spec.use_bias,
        "name": name_of(node),
    }


def _padded(node: Node, x: Tensor, value: float = 0.0) -> tuple[Tensor, str]:
    """The input with its padding of one value, or what Keras calls the padding that is still to come."""
    if node.spec.is_same(node.input_shape):
        return x, "same"
    pads = node.spec.pads(node.input_shape)
    if any(map(any, pads)):
        x = ops.pad(x, [(0, 0), *pads, (0, 0)], constant_values=value)
    return x, "valid"


@register(spec.Conv2DTranspose, spec.Conv1DTranspose)
def _transposed(build: Build, node: Node, x: Tensor) -> Tensor:
    layer = node.spec
    crops = layer.crops()
    if layer.groups > 1 or min(after for _, after in crops) < 0:
        raise missing(node, "groups, or cells that only the bias reaches")
    flat = layer.rank == 1
    kind = keras.layers.Conv1DTranspose if flat else keras.layers.Conv2DTranspose
    # Whole, so that what is taken off is ours to say; the bias goes the same way.
    made = kind(layer.filters, layer.kernel(), **_geometry(node, "valid"))
    y = build.put_named(made, node, x, "kernel", "bias")
    if not any(map(any, crops)):
        return y
    return keras.layers.Cropping1D(crops[0])(y) if flat else keras.layers.Cropping2D(crops)(y)


@register(spec.MaxPool2D, spec.MaxPool1D)
def _max_pool(build: Build, node: Node, x: Tensor) -> Tensor:
    x, padding = _padded(node, x, float(np.finfo(keras.config.floatx()).min))
    return _pool(keras.layers.MaxPooling1D, keras.layers.MaxPooling2D, node, padding)(x)


@register(spec.AveragePool2D, spec.AveragePool1D)
def _average_pool(build: Build, node: Node, x: Tensor) -> Tensor:
    pads, counts = node.spec.pads(node.input_shape), node.spec.counts(node.input_shape)
    if any(map(any, pads)):
        x = ops.pad(x, [(0, 0), *pads, (0, 0)])
    y = _pool(keras.layers.AveragePooling1D, keras.layers.AveragePooling2D, node, "valid")(x)
    full = float(np.prod(node.spec.window()))
    return y if (counts == full).all() else y * constant(full / counts)


def _pool(flat: Any, square: Any, node: Node, padding: str) -> keras.layers.Layer:
    kind = flat if node.spec.rank == 1 else square
    layer: keras.layers.Layer = kind(
        node.spec.window(), strides=node.spec.steps(), padding=padding, name=name_of(node)
    )
    return layer


@register(spec.GlobalAveragePool, spec.GlobalMaxPool)
def _global_pool(build: Build, node: Node, x: Tensor) -> Tensor:
    over = ops.max if isinstance(node.spec, spec.GlobalMaxPool) else ops.mean
    return over(x, axis=tuple(range(1, len(node.input_shape))))


@register(spec.ZeroPad2D)
def _zero_pad(build: Build, node: Node, x: Tensor) -> Tensor:
    return keras.layers.ZeroPadding2D(node.spec.pads(), name=name_of(node))(x)


@register(spec.UpSampling2D, spec.Resize)
def _resize(build: Build, node: Node, x: Tensor) -> Tensor:
    before, after = node.input_shape[:2], node.output_shape[:2]
    pairs = list(zip(before, after, strict=True))
    if node.spec.interpolation == "nearest":
        if any(b % a for a, b in pairs):
            raise missing(node, "nearest to a size that is no multiple")
        return keras.layers.UpSampling2D([b // a for a, b in pairs], name=name_of(node))(x)
    # Keras's own computes in float32.
    rows, columns = (constant(node.spec.matrix(*pair)) for pair in pairs)
    x = ops.einsum("oh,bhwc->bowc", rows, x)
    return ops.einsum("pw,bowc->bopc", columns, x)


def constant(value: np.ndarray) -> Tensor:
    """An array that an operation of the model has in itself."""
    return np.asarray(value, keras.config.floatx())
