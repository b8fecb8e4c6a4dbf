"""Keras's layers in canonical kinds, roles and settings; see `common/external/lint/settings.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers as kl

from parity.common.spec.external.outline import TensorInfo
from parity.tf_impl.external.functions import Settings
from parity.tf_impl.external.readers import READERS

_KINDS: dict[type[kl.Layer], str] = {
    kl.Dense: "dense",
    kl.EinsumDense: "einsum_dense",
    kl.Conv1D: "conv1d",
    kl.Conv2D: "conv2d",
    kl.Conv3D: "conv3d",
    kl.DepthwiseConv1D: "depthwise_conv1d",
    kl.DepthwiseConv2D: "depthwise_conv2d",
    kl.SeparableConv1D: "separable_conv1d",
    kl.SeparableConv2D: "separable_conv2d",
    kl.Conv1DTranspose: "conv1d_transpose",
    kl.Conv2DTranspose: "conv2d_transpose",
    kl.Conv3DTranspose: "conv3d_transpose",
    kl.BatchNormalization: "batch_norm",
    kl.LayerNormalization: "layer_norm",
    kl.RMSNormalization: "rms_norm",
    kl.GroupNormalization: "group_norm",
    kl.Embedding: "embedding",
    kl.ReversibleEmbedding: "embedding",
    kl.MaxPooling1D: "max_pool1d",
    kl.MaxPooling2D: "max_pool2d",
    kl.MaxPooling3D: "max_pool3d",
    kl.AveragePooling1D: "average_pool1d",
    kl.AveragePooling2D: "average_pool2d",
    kl.AveragePooling3D: "average_pool3d",
    kl.GlobalAveragePooling1D: "global_average_pool",
    kl.GlobalAveragePooling2D: "global_average_pool",
    kl.GlobalAveragePooling3D: "global_average_pool",
    kl.GlobalMaxPooling1D: "global_max_pool",
    kl.GlobalMaxPooling2D: "global_max_pool",
    kl.GlobalMaxPooling3D: "global_max_pool",
    kl.AdaptiveAveragePooling1D: "adaptive_average_pool",
    kl.AdaptiveAveragePooling2D: "adaptive_average_pool",
    kl.AdaptiveAveragePooling3D: "adaptive_average_pool",
    kl.AdaptiveMaxPooling1D: "adaptive_max_pool",
    kl.AdaptiveMaxPooling2D: "adaptive_max_pool",
    kl.AdaptiveMaxPooling3D: "adaptive_max_pool",
    kl.Dropout: "dropout",
    kl.SpatialDropout1D: "dropout",
    kl.SpatialDropout2D: "dropout",
    kl.SpatialDropout3D: "dropout",
    kl.AlphaDropout: "alpha_dropout",
    kl.GaussianDropout: "gaussian_dropout",
    kl.GaussianNoise: "gaussian_noise",
    kl.PReLU: "prelu",
    kl.Flatten: "flatten",
    kl.Reshape: "reshape",
    kl.Permute: "permute",
    kl.RepeatVector: "repeat",
    kl.Identity: "identity",
    kl.LSTM: "lstm",
    kl.GRU: "gru",
    kl.SimpleRNN: "simple_rnn",
    kl.MultiHeadAttention: "attention",
    kl.GroupQueryAttention: "attention",
    kl.UpSampling1D: "resize",
    kl.UpSampling2D: "resize",
    kl.UpSampling3D: "resize",
    kl.Resizing: "resize",
    kl.ZeroPadding1D: "zero_pad",
    kl.ZeroPadding2D: "zero_pad",
    kl.ZeroPadding3D: "zero_pad",
    kl.Cropping1D: "crop",
    kl.Cropping2D: "crop",
    kl.Cropping3D: "crop",
    kl.Rescaling: "rescale",
    kl.Normalization: "standardize",
    kl.Add: "add",
    kl.Average: "average",
    kl.Concatenate: "concatenate",
    kl.Multiply: "multiply",
    kl.Subtract: "subtract",
    kl.Maximum: "maximum",
    kl.Minimum: "minimum",
    kl.Dot: "dot",
    kl.Masking: "masking",
    kl.Activation: "activation",
    kl.ReLU: "activation",
    kl.LeakyReLU: "activation",
    kl.ELU: "activation",
    kl.Softmax: "activation",
    kl.ActivityRegularization: "activity_penalty",
}
_RECURRENT = (kl.LSTM, kl.GRU, kl.SimpleRNN)
_ROLES = {"embeddings": "embedding"}
_REGULARIZED = (
    *("kernel", "bias", "recurrent", "depthwise", "pointwise"),
    *("gamma", "beta", "alpha", "embeddings", "activity"),
)
_REGULARIZERS = (
    *(f"{role}_regularizer" for role in _REGULARIZED),
    *(f"{role}_constraint" for role in ("kernel", "bias", "embeddings")),
)
_ATTENTION = {
    "query": "query",
    "key": "key",
    "value": "value",
    "attention_output": "output",
    "output": "output",
}


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
    return stock is not None and type(layer) is not stock and type(layer).call is not stock.call


def is_stochastic(layer: kl.Layer) -> bool:
    """Whether it draws random numbers in training."""
    if isinstance(layer, kl.Bidirectional):
        return is_stochastic(layer.forward_layer) or is_stochastic(layer.backward_layer)
    names = ("rate", "dropout", "recurrent_dropout", "stddev", "_dropout")
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


def settings_of(layer: kl.Layer, tensors: Sequence[TensorInfo]) -> Settings:
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
    parameters = [info for info in tensors if not info.buffer]
    if parameters:
        found["trainable"] = any(info.trainable for info in parameters)
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
