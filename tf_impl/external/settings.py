"""Keras's layers and functions in canonical kinds, roles and settings; see `common/external/lint/settings.py`."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers as kl

from parity.common.spec.external.outline import Settings
from parity.tf_impl.external.readers import FUNCTIONS, READERS
from parity.tf_impl.legacy.keras2 import FusedBatchNormalization
from parity.tf_impl.private_names import keras_layers

# By kind; {} stands for the number of spatial axes: 1 for the first class of a row, then 2, then 3.
_CLASSES: dict[str, tuple[type[kl.Layer], ...]] = {
    "dense": (kl.Dense,),
    "einsum_dense": (kl.EinsumDense,),
    "conv{}d": (kl.Conv1D, kl.Conv2D, kl.Conv3D),
    "depthwise_conv{}d": (kl.DepthwiseConv1D, kl.DepthwiseConv2D),
    "separable_conv{}d": (kl.SeparableConv1D, kl.SeparableConv2D),
    "conv{}d_transpose": (kl.Conv1DTranspose, kl.Conv2DTranspose, kl.Conv3DTranspose),
    "batch_norm": (kl.BatchNormalization,),
    "layer_norm": (kl.LayerNormalization,),
    "rms_norm": keras_layers("RMSNormalization"),
    "group_norm": (kl.GroupNormalization,),
    "embedding": keras_layers("Embedding", "ReversibleEmbedding"),
    "max_pool{}d": (kl.MaxPooling1D, kl.MaxPooling2D, kl.MaxPooling3D),
    "average_pool{}d": (kl.AveragePooling1D, kl.AveragePooling2D, kl.AveragePooling3D),
    "global_average_pool": (kl.GlobalAveragePooling1D, kl.GlobalAveragePooling2D, kl.GlobalAveragePooling3D),
    "global_max_pool": (kl.GlobalMaxPooling1D, kl.GlobalMaxPooling2D, kl.GlobalMaxPooling3D),
    "adaptive_average_pool": keras_layers(*(f"AdaptiveAveragePooling{axes}D" for axes in (1, 2, 3))),
    "adaptive_max_pool": keras_layers(*(f"AdaptiveMaxPooling{axes}D" for axes in (1, 2, 3))),
    "dropout": (kl.Dropout, kl.SpatialDropout1D, kl.SpatialDropout2D, kl.SpatialDropout3D),
    "alpha_dropout": (kl.AlphaDropout,),
    "gaussian_dropout": (kl.GaussianDropout,),
    "gaussian_noise": (kl.GaussianNoise,),
    "prelu": (kl.PReLU,),
    "flatten": (kl.Flatten,),
    "reshape": (kl.Reshape,),
    "permute": (kl.Permute,),
    "repeat": (kl.RepeatVector,),
    "identity": (kl.Identity,),
    "lstm": (kl.LSTM,),
    "gru": (kl.GRU,),
    "simple_rnn": (kl.SimpleRNN,),
    "lstm_cell": (kl.LSTMCell,),
    "gru_cell": (kl.GRUCell,),
    "simple_rnn_cell": (kl.SimpleRNNCell,),
    "attention": (kl.MultiHeadAttention, kl.GroupQueryAttention),
    "resize": (kl.UpSampling1D, kl.UpSampling2D, kl.UpSampling3D, kl.Resizing),
    "zero_pad": (kl.ZeroPadding1D, kl.ZeroPadding2D, kl.ZeroPadding3D),
    "crop": (kl.Cropping1D, kl.Cropping2D, kl.Cropping3D),
    "rescale": (kl.Rescaling,),
    "standardize": (kl.Normalization,),
    "add": (kl.Add,),
    "average": (kl.Average,),
    "concatenate": (kl.Concatenate,),
    "multiply": (kl.Multiply,),
    "subtract": (kl.Subtract,),
    "maximum": (kl.Maximum,),
    "minimum": (kl.Minimum,),
    "dot": (kl.Dot,),
    "masking": (kl.Masking,),
    "activation": (kl.Activation, kl.ReLU, kl.LeakyReLU, kl.ELU, kl.Softmax),
    "activity_penalty": (kl.ActivityRegularization,),
}
_KINDS = {cls: kind.format(rank) for kind, classes in _CLASSES.items() for rank, cls in enumerate(classes, 1)}
_RECURRENT = (kl.LSTM, kl.GRU, kl.SimpleRNN)
_ROLES = {"embeddings": "embedding"}
_ATTENTION = {name: name for name in ("query", "key", "value", "output")} | {"attention_output": "output"}
_WEIGHTS = ("kernel", "bias", "recurrent", "depthwise", "pointwise", "gamma", "beta", "alpha", "embeddings")
_REGULARIZERS = (
    *(f"{role}_regularizer" for role in (*_WEIGHTS, "activity")),
    *(f"{role}_constraint" for role in ("kernel", "bias", "embeddings")),
)
# Functions that are watched in a pass.
WATCHED = (*FUNCTIONS, "pad")
# Settings that functions of backend.nn and tf.nn take as an argument, their second.
_ARGUMENTS = ("negative_slope", "approximate", "alpha", "axis")


def _stock(layer: kl.Layer) -> type[kl.Layer] | None:
    """Keras's own class that a layer is of, or derives from."""
    return next((cls for cls in type(layer).__mro__ if cls in _KINDS), None)


def kind_of(layer: kl.Layer) -> str:
    """The canonical kind, '' where it is none that we know."""
    if isinstance(layer, kl.Bidirectional):
        ways = (layer.forward_layer, layer.backward_layer)
        same = type(ways[0]) is type(ways[1]) and isinstance(ways[0], _RECURRENT)
        return kind_of(ways[0]) if same else ""
    stock = _stock(layer)
    if stock is None:
        return ""
    kind = _KINDS[stock]
    if stock in (kl.Conv1D, kl.Conv2D) and layer.groups > 1 and layer.built:
        # One channel a group: as many groups as channels.
        return f"depthwise_{kind}" if layer.kernel.shape[-2] == 1 else kind
    if stock is kl.GroupNormalization and layer.groups == -1:
        return "instance_norm"
    return kind


def is_overridden(layer: kl.Layer) -> bool:
    """Whether the class computes otherwise than Keras's own that it derives from."""
    stock = _stock(layer)
    own = stock is not None and type(layer) not in (stock, FusedBatchNormalization)
    return own and type(layer).call is not stock.call


def _draws(layer: kl.Layer) -> bool:
    """Whether its rates are such of random numbers: a user's own layer that has a rate of something else has no seed."""
    return type(layer).__module__.startswith("keras.") or bool(layer._seed_generators)


def is_stochastic(layer: kl.Layer) -> bool:
    """Whether it draws random numbers in training."""
    if isinstance(layer, kl.Bidirectional):
        return is_stochastic(layer.forward_layer) or is_stochastic(layer.backward_layer)
    names = ("rate", "dropout", "recurrent_dropout", "stddev", "_dropout") if _draws(layer) else ()
    rates = [rate for name in names if isinstance(rate := getattr(layer, name, None), int | float)]
    if rates:
        return any(rate > 0 for rate in rates)
    return bool(layer._seed_generators)


def role_of(layer: kl.Layer, name: str) -> str:
    """The canonical role of a variable by its name in the layer; that name where it has none."""
    parts = name.split("/")
    if kind_of(layer) == "attention" and len(parts) > 1 and parts[-2] in _ATTENTION:
        return f"{_ATTENTION[parts[-2]]}_{parts[-1]}"
    if isinstance(layer, kl.Bidirectional):
        backward = name.startswith(("backward_", f"{layer.backward_layer.name}/"))
        return f"backward_{parts[-1]}" if backward else parts[-1]
    if kind_of(layer):
        return _ROLES.get(parts[-1], parts[-1])
    return name


def settings_of(layer: kl.Layer) -> Settings:
    """The canonical settings of a layer of a known kind; none of others."""
    if isinstance(layer, kl.Bidirectional) and kind_of(layer):
        found = READERS[kind_of(layer)](layer.forward_layer)
        found |= {"direction": "both", "merge": layer.merge_mode}
    elif kind_of(layer) in READERS:
        found = READERS[kind_of(layer)](layer)
    else:
        return {}
    if is_overridden(layer):
        found.pop("running_variance", None)
    return {**found, **_regularizers(layer)}


def argument_of(layer: kl.Layer) -> Settings | None:
    """The function of a layer's `activation` argument; None where it has none, or the argument is all it is."""
    if kind_of(layer) in ("", "activation", "lstm", "gru", "simple_rnn"):
        return None
    function = getattr(layer, "activation", None)
    if function is None or function is keras.activations.linear:
        return None
    return READERS["activation"](kl.Activation(function, name="argument"))


def _regularizers(layer: Any) -> Settings:
    found: Settings = {}
    for name in _REGULARIZERS:
        value = getattr(layer, name, None)
        if value is None:
            continue
        named = {part: float(getattr(value, part)) for part in ("l1", "l2") if hasattr(value, part)}
        details = [f"{part} {number:g}" for part, number in named.items() if number]
        if details or not named:
            found[name] = ", ".join(details) or type(value).__name__
    return found


def function_of(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[str, str, Settings] | None:
    """(its name, its kind, its settings) of a function of the backend or of TensorFlow that stands for a layer."""
    del result
    name = function.__name__.removesuffix("_v2")
    name = "silu" if name == "swish" else name
    if name == "pad":
        return _padded(args, kwargs)
    if name not in FUNCTIONS:
        return None
    settings = dict(FUNCTIONS[name])
    for key in settings.keys() & set(_ARGUMENTS):
        # Of Keras's backend, where the default differs from that of keras.activations.
        default = settings[key] if name != "gelu" or function.__module__.startswith("tensorflow") else True
        value = kwargs.get(key, kwargs.get("alpha", args[1] if len(args) > 1 else default))
        settings[key] = value if isinstance(value, bool | int) else float(value)
    return name, "activation", settings


def _padded(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[str, str, Settings] | None:
    """Zeros around all axes but those of batch and channels, which come last."""
    arguments = dict(zip(("x", "pad_width", "mode", "constant_values"), args, strict=False)) | given
    mode = str(arguments.get("mode", "constant")).lower()
    width = arguments.get("pad_width", arguments.get("paddings"))
    try:
        pairs = [(int(before), int(after)) for before, after in width]
    except TypeError:
        return None
    zeros = mode == "constant" and not arguments.get("constant_values")
    if not zeros or len(pairs) < 3 or any(pairs[0]) or any(pairs[-1]):
        return None
    return "pad", "zero_pad", {"padding": tuple(side for pair in pairs[1:-1] for side in pair)}
