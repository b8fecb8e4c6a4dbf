"""ModelSpec -> a functional model of Keras's own layers and operations, for export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from parity.common.base.errors import CheckpointError
from parity.common.base.registry import Registry
from parity.common.checkpoint.weights import Weights
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.common.state.canonical import State, canonical_name
from parity.tf_impl.private_names import keras_layer

Tensor = Any
Builder = Callable[["Build", Node, Tensor], Tensor]


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

    def branches(self, node: Node, x: Tensor) -> list[Tensor]:
        """What each child makes of x."""
        return [self(child, x) for child in node.children]

    def own(self, node: Node) -> State:
        """A node's tensors by their names in the spec."""
        return {p.name: self.tensors[canonical_name(node.path, p)] for p in node.parameters}

    def put(self, layer: layers.Layer, values: list[np.ndarray | None], x: Tensor, **given: Any) -> Tensor:
        """Apply a layer, and give it its weights in Keras's order; those that are None it does not have."""
        y = layer(x, **given)
        layer.set_weights([value for value in values if value is not None])
        return y

    def put_named(self, layer: layers.Layer, node: Node, x: Tensor, *names: str) -> Tensor:
        """`put` with a node's tensors of these names, as far as it has them."""
        own = self.own(node)
        return self.put(layer, [own.get(name) for name in names], x)


def missing(node: Node, why: str = "") -> CheckpointError:
    """For a layer that stock Keras has not."""
    return CheckpointError(
        f"layer {node.path} ({node.spec.kind}): Keras has no stock layer with the same mathematics"
        f"{f' ({why})' if why else ''}; load the run with parity.tf_impl.inference.load instead"
    )


def name_of(node: Node) -> str:
    """A layer's name in the model; of a path, where slashes are not allowed."""
    return node.path.replace("/", ".")


# By its spec, what a layer is made of: here where one expression says it, below where it takes more.
_BUILDERS: Registry[Builder] = Registry(
    {
        spec.Sequential: lambda build, node, x: build.chain(node.children, x),
        spec.Repeat: lambda build, node, x: build.chain(node.children, x),
        spec.Residual: lambda build, node, x: layers.Add(name=name_of(node))(
            [x, build.chain(node.children, x)]
        ),
        spec.Add: lambda build, node, x: layers.Add(name=name_of(node))(build.branches(node, x)),
        spec.Concatenate: lambda build, node, x: layers.Concatenate(name=name_of(node))(
            build.branches(node, x)
        ),
        spec.Identity: lambda build, node, x: x,
        spec.ActivityPenalty: lambda build, node, x: x,
        spec.Reshape: lambda build, node, x: layers.Reshape(node.output_shape, name=name_of(node))(x),
        spec.Permute: lambda build, node, x: layers.Permute(node.spec.dims, name=name_of(node))(x),
        spec.Slice: lambda build, node, x: x[..., node.spec.start : node.spec.stop],
        spec.TakeToken: lambda build, node, x: x[:, node.spec.index],
        spec.GlobalAveragePool: lambda build, node, x: ops.mean(
            x, axis=tuple(range(1, len(node.input_shape)))
        ),
        spec.GlobalMaxPool: lambda build, node, x: ops.max(x, axis=tuple(range(1, len(node.input_shape)))),
        spec.ZeroPad2D: lambda build, node, x: layers.ZeroPadding2D(node.spec.pads(), name=name_of(node))(x),
    }
)
register = _BUILDERS.register


@register(spec.Dropout)
def _dropout(build: Build, node: Node, x: Tensor) -> Tensor:
    kind: Any = layers.Dropout
    if node.spec.whole == "channels":
        kind = {2: layers.SpatialDropout1D, 3: layers.SpatialDropout2D}.get(len(node.input_shape))
        if kind is None:
            return x
    return kind(node.spec.rate, name=name_of(node))(x)


@register(spec.Dense)
def _dense(build: Build, node: Node, x: Tensor) -> Tensor:
    layer = layers.Dense(node.spec.units, use_bias=node.spec.use_bias, name=name_of(node))
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
    return layers.Activation(function, name=name_of(node))(x)


@register(spec.PReLU)
def _prelu(build: Build, node: Node, x: Tensor) -> Tensor:
    shared = [] if node.spec.slope_per == "element" else list(range(1, len(node.input_shape)))
    alpha = build.own(node)["alpha"]
    shape = tuple(1 if axis + 1 in shared else side for axis, side in enumerate(node.input_shape))
    layer = layers.PReLU(shared_axes=shared or None, name=name_of(node))
    return build.put(layer, [np.broadcast_to(alpha, shape)], x)


@register(spec.Flatten)
def _flatten(build: Build, node: Node, x: Tensor) -> Tensor:
    rank = len(node.input_shape)
    if node.spec.order == "chw" and rank > 1:
        x = layers.Permute((rank, *range(1, rank)))(x)
    return layers.Reshape(node.output_shape, name=name_of(node))(x)


@register(spec.Patchify)
def _patchify(build: Build, node: Node, x: Tensor) -> Tensor:
    size = node.spec.size
    height, width, channels = node.input_shape
    x = layers.Reshape((height // size, size, width // size, size, channels))(x)
    x = layers.Permute((1, 3, 2, 4, 5))(x)
    return layers.Reshape(node.output_shape, name=name_of(node))(x)


@register(spec.BatchNorm, spec.LayerNorm, spec.GroupNorm, spec.InstanceNorm)
def _norm(build: Build, node: Node, x: Tensor) -> Tensor:
    own, layer = build.own(node), node.spec
    common = {
        "epsilon": layer.epsilon,
        "center": "beta" in own,
        "scale": "gamma" in own,
        "name": name_of(node),
    }
    made: layers.Layer
    if isinstance(layer, spec.BatchNorm):
        made = layers.BatchNormalization(momentum=layer.decay, **common)
    elif isinstance(layer, spec.LayerNorm):
        made = layers.LayerNormalization(axis=list(range(-layer.axes, 0)), **common)
    else:
        groups = layer.groups if isinstance(layer, spec.GroupNorm) else -1
        made = layers.GroupNormalization(groups=groups, **common)
    return build.put_named(made, node, x, "gamma", "beta", "moving_mean", "moving_variance")


@register(spec.RMSNorm)
def _rms_norm(build: Build, node: Node, x: Tensor) -> Tensor:
    epsilon = node.spec.epsilon
    if epsilon == "machine":
        epsilon = float(np.finfo(keras.config.floatx()).eps)
    gamma = build.own(node).get("gamma")
    shape = node.input_shape[-node.spec.axes :]
    axes = list(range(-node.spec.axes, 0))
    layer = keras_layer("RMSNormalization")(axis=axes, epsilon=epsilon, name=name_of(node))
    return build.put(layer, [np.ones(shape) if gamma is None else gamma], x)


@register(spec.Conv2D, spec.Conv1D, spec.DepthwiseConv2D, spec.SeparableConv2D)
def _convolution(build: Build, node: Node, x: Tensor) -> Tensor:
    layer = node.spec
    x, padding = _padded(node, x)
    common = _geometry(node, padding)
    made: layers.Layer
    if isinstance(layer, spec.DepthwiseConv2D):
        made = layers.DepthwiseConv2D(layer.kernel(), depth_multiplier=layer.depth_multiplier, **common)
    elif isinstance(layer, spec.SeparableConv2D):
        multiplier = layer.depth_multiplier
        made = layers.SeparableConv2D(layer.filters, layer.kernel(), depth_multiplier=multiplier, **common)
    else:
        kind = layers.Conv1D if layer.rank == 1 else layers.Conv2D
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
    kind = layers.Conv1DTranspose if flat else layers.Conv2DTranspose
    # Whole, so that what is taken off is ours to say; the bias goes the same way.
    made = kind(layer.filters, layer.kernel(), **_geometry(node, "valid"))
    y = build.put_named(made, node, x, "kernel", "bias")
    if not any(map(any, crops)):
        return y
    return layers.Cropping1D(crops[0])(y) if flat else layers.Cropping2D(crops)(y)


@register(spec.MaxPool2D, spec.MaxPool1D)
def _max_pool(build: Build, node: Node, x: Tensor) -> Tensor:
    x, padding = _padded(node, x, float(np.finfo(keras.config.floatx()).min))
    return _pool(layers.MaxPooling1D, layers.MaxPooling2D, node, padding)(x)


@register(spec.AveragePool2D, spec.AveragePool1D)
def _average_pool(build: Build, node: Node, x: Tensor) -> Tensor:
    pads, counts = node.spec.pads(node.input_shape), node.spec.counts(node.input_shape)
    if any(map(any, pads)):
        x = ops.pad(x, [(0, 0), *pads, (0, 0)])
    y = _pool(layers.AveragePooling1D, layers.AveragePooling2D, node, "valid")(x)
    full = float(np.prod(node.spec.window()))
    return y if (counts == full).all() else y * constant(full / counts)


def _pool(flat: Any, square: Any, node: Node, padding: str) -> layers.Layer:
    kind = flat if node.spec.rank == 1 else square
    layer: layers.Layer = kind(
        node.spec.window(), strides=node.spec.steps(), padding=padding, name=name_of(node)
    )
    return layer


@register(spec.UpSampling2D, spec.Resize)
def _resize(build: Build, node: Node, x: Tensor) -> Tensor:
    before, after = node.input_shape[:2], node.output_shape[:2]
    pairs = list(zip(before, after, strict=True))
    if node.spec.interpolation == "nearest":
        if any(b % a for a, b in pairs):
            raise missing(node, "nearest to a size that is no multiple")
        return layers.UpSampling2D([b // a for a, b in pairs], name=name_of(node))(x)
    # Keras's own computes in float32.
    rows, columns = (constant(node.spec.matrix(*pair)) for pair in pairs)
    x = ops.einsum("oh,bhwc->bowc", rows, x)
    return ops.einsum("pw,bowc->bopc", columns, x)


def constant(value: np.ndarray) -> Tensor:
    """An array that an operation of the model has in itself."""
    return np.asarray(value, keras.config.floatx())


@register(spec.Embedding)
def _embedding(build: Build, node: Node, x: Tensor) -> Tensor:
    layer = layers.Embedding(node.spec.vocabulary, node.spec.features, name=name_of(node))
    return build.put(layer, [build.own(node)["embedding"]], x)


@register(spec.TiedEmbedding)
def _tied(build: Build, node: Node, x: Tensor) -> Tensor:
    own, beside = build.own(node), len(node.spec.beside)
    tied = keras_layer("ReversibleEmbedding")
    layer = tied(node.spec.vocabulary, node.spec.features, name=name_of(node))
    y = build.put(layer, [own["embedding"]], x)
    for child in node.children[:beside]:
        y = y + build(child, x)
    y = layer(build.chain(node.children[beside:], y), reverse=True)
    return y + constant(own["output_bias"]) if "output_bias" in own else y


def _row(build: Build, node: Node, numbers: Tensor) -> Tensor:
    """Rows of a node's table; its numbers are computed, not given."""
    table = build.own(node)["embedding"]
    rows, features = table.reshape(-1, table.shape[-1]).shape
    layer = layers.Embedding(rows, features, name=name_of(node))
    return build.put(layer, [table.reshape(rows, features)], numbers)


@register(spec.PositionEmbedding)
def _positions(build: Build, node: Node, x: Tensor) -> Tensor:
    numbers = ops.cumsum(ops.ones_like(x[..., 0], dtype="int32"), axis=1) - 1
    return x + _row(build, node, numbers)


@register(spec.SinusoidalPositions)
def _sinusoidal(build: Build, node: Node, x: Tensor) -> Tensor:
    return x + constant(node.spec.table(node.input_shape))


@register(spec.SegmentEmbedding)
def _segments(build: Build, node: Node, x: Tensor) -> Tensor:
    if node.spec.separator_id is None:
        return _row(build, node, ops.zeros_like(x, dtype="int32"))
    separators = ops.cast(ops.equal(x, node.spec.separator_id), "int32")
    before = ops.cumsum(separators, axis=1) - separators
    return _row(build, node, ops.minimum(before, node.spec.types - 1))


@register(spec.ClassToken)
def _class_token(build: Build, node: Node, x: Tensor) -> Tensor:
    first = _row(build, node, ops.zeros_like(x[:, :1, 0], dtype="int32"))
    return layers.Concatenate(axis=1)([first, x])


@register(spec.SelfAttention)
def _self_attention(build: Build, node: Node, x: Tensor) -> Tensor:
    if node.spec.rotary:
        raise missing(node, "rotary positions")
    return _attention(build, node, x, x, node.spec.causal)


@register(spec.CrossAttention)
def _cross_attention(build: Build, node: Node, x: Tensor) -> Tensor:
    return _attention(build, node, x, build.chain(node.children, x), False)


def _attention(build: Build, node: Node, x: Tensor, memory: Tensor, causal: bool) -> Tensor:
    layer, own = node.spec, build.own(node)
    if ("query_bias" in own) != ("output_bias" in own):
        raise missing(node, "a bias of the output alone, or of all but it")
    size, inner = layer.size(node.input_shape), layer.heads * layer.size(node.input_shape)
    common = {"use_bias": layer.use_bias, "dropout": layer.dropout, "name": name_of(node)}
    if layer.groups == layer.heads:
        made = layers.MultiHeadAttention(layer.heads, size, **common)
    else:
        made = layers.GroupQueryAttention(size, layer.heads, layer.groups, **common)
    values = []
    for part, heads in (("query", layer.heads), ("key", layer.groups), ("value", layer.groups)):
        values.append(own[f"{part}_kernel"].reshape(-1, heads, size))
        if f"{part}_bias" in own:
            values.append(own[f"{part}_bias"].reshape(heads, size))
    values.append(own["output_kernel"].reshape(layer.heads, inner // layer.heads, -1))
    values.append(own.get("output_bias"))
    masked: dict[str, Any] = {"use_causal_mask": causal}
    if layer.masked and build.kept is not None:
        masked["attention_mask"] = ops.expand_dims(build.kept, 1)
    return build.put(made, values, x, value=memory, **masked)


@register(spec.LSTM, spec.GRU, spec.SimpleRNN)
def _recurrent(build: Build, node: Node, x: Tensor) -> Tensor:
    layer, own = node.spec, build.own(node)
    both = layer.direction == "both"
    mask = build.kept if layer.masked else None
    if mask is not None and layer.return_sequences and layer.zero_padded != both:
        raise missing(node, f"padded_outputs {layer.padded_outputs}")
    kind: Any = {
        spec.LSTM: layers.LSTM,
        spec.GRU: layers.GRU,
        spec.SimpleRNN: layers.SimpleRNN,
    }[type(layer)]
    more = {"reset_after": layer.reset == "after"} if isinstance(layer, spec.GRU) else {}
    made: layers.Layer = kind(
        layer.units,
        return_sequences=layer.return_sequences,
        use_bias=layer.use_bias,
        go_backwards=layer.direction == "backward",
        name=name_of(node),
        **more,
    )
    if both:
        merge = "concat" if layer.merge == "concatenate" else "sum"
        made = layers.Bidirectional(made, merge_mode=merge, name=f"{name_of(node)}.both")
    values = [value for prefix, _ in layer.ways for value in _cell(layer, own, prefix)]
    y = build.put(made, values, x, **({} if mask is None else {"mask": mask}))
    if mask is not None and layer.return_sequences:
        # An operation leaves behind the mask that Keras would hand on to layers that are to see padding.
        y = ops.copy(y)
    # Keras leaves outputs in the order of their making.
    return ops.flip(y, axis=1) if layer.direction == "backward" and layer.return_sequences else y


def _cell(layer: Any, own: State, prefix: str) -> list[np.ndarray | None]:
    """Kernel, recurrent kernel and bias of one direction."""
    bias, second = own.get(f"{prefix}bias"), own.get(f"{prefix}recurrent_bias")
    if second is not None:
        # Keras has two in a GRU alone; in the others they are added, and one sum does.
        bias = np.stack([bias, second]) if isinstance(layer, spec.GRU) else bias + second
    return [own[f"{prefix}kernel"], own[f"{prefix}recurrent_kernel"], bias]
