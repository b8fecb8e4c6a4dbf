"""Experiments: a canonical setting of a live layer changed, and changed back."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from parity.common.external.process.changes import FORCED, force, numbers, set_attribute, sides
from parity.tf_impl.external import names
from parity.tf_impl.external.settings import argument_of, kind_of, settings_of
from parity.tf_impl.private_names import path_of

# What an `activation` argument was changed to, and what it was, in the layer's own dictionary.
_FORCED_FUNCTION = "_parity_function"


def layers(model: keras.Layer) -> dict[str, Any]:
    """Return by path what has settings that can be changed: layers, and their `activation` arguments."""
    found = names.layers(model)
    arguments = {
        f"{path}/activation": _ActivationArgument(layer)
        for path, layer in found.items()
        if argument_of(layer) or _FORCED_FUNCTION in vars(layer)
    }
    return {**found, **arguments}


def dropping(model: keras.Layer) -> dict[str, Any]:
    """Return by path what may drop a part of what it computes: the cells of recurrent layers, too."""
    return {path_of(layer) or layer.name: layer for layer in model._flatten_layers()}


class _ActivationArgument:
    """The `activation` argument of a layer, as an outline lists it among its operations."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer


def read(layer: Any) -> dict[str, Any]:
    """Return the canonical settings of one of `layers`, as they are now."""
    if isinstance(layer, _ActivationArgument):
        _, forced = vars(layer.layer).get(_FORCED_FUNCTION, (None, {}))
        if set(forced) == {"approximate"}:
            return {"function": "gelu", **forced}
        return dict(argument_of(layer.layer) or {"function": "linear"})
    trainable = {"trainable": bool(layer.trainable)} if layer.weights else {}
    mode = {"pass_mode": "own"} if kind_of(layer) == "batch_norm" else {}
    return {**settings_of(layer), **trainable, **mode, **vars(layer).get(FORCED, {})}


def write(layer: Any, setting: str, value: Any) -> None:
    """Change a setting of one of `layers`; raises KeyError for what cannot be changed."""
    if isinstance(layer, _ActivationArgument):
        _activate(layer.layer, setting, value)
        return
    kind = kind_of(layer)
    if setting == "trainable":
        layer.trainable = bool(value)
    elif (setting == "padding" and kind.startswith(("conv", "depthwise_conv", "max_pool"))) or (
        setting in ("padding", "count_padding") and kind.startswith("average_pool")
    ):
        _pad(layer, kind, setting, value)
    elif setting == "running_variance" and kind == "batch_norm":
        _force(layer, setting, value, _with_unbiased_variance if value == "unbiased" else None)
    elif setting == "pass_mode" and kind == "batch_norm":
        _force(layer, setting, value, _runs(value))
    elif setting in _CELL_MASKS and value in (0.0, settings_of(layer)[setting]):
        _drop_in_cells(layer, setting, value)
    elif setting in ("function", "approximate") and kind == "activation":
        native = settings_of(layer).get(setting) == value
        function = None if native else _function(setting, value)
        _force(layer, setting, value, None if function is None else lambda own: function)
    else:
        set_attribute(layer, setting, value, _ATTRIBUTES)


_force = partial(force, "call")
# Canonical setting -> attribute of a layer, and its value there.
_ATTRIBUTES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: (name, float) for name in ("epsilon", "rate", "negative_slope", "alpha")},
    "decay": ("momentum", float),
    "deviation": ("stddev", float),
    "axis": ("axis", int),
    "strides": ("strides", tuple),
    "dilation": ("dilation_rate", tuple),
    "interpolation": ("interpolation", lambda value: value),
}
# By setting of a recurrent layer what gives its cell the mask.
_CELL_MASKS = {"input_dropout": "get_dropout_mask", "recurrent_dropout": "get_recurrent_dropout_mask"}
_PIECEWISE = ("linear", "relu", "relu6", "hard_sigmoid")
_SMOOTH = ("gelu", "silu", "mish", "selu", "elu", "sigmoid", "tanh", "softplus", "softsign")
# Canonical function -> Keras's.
_FUNCTIONS = {name: name for name in (*_PIECEWISE, *_SMOOTH)} | {"hard_swish": "hard_silu"}


def _function(setting: str, value: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    if setting == "approximate":
        return lambda x: keras.activations.gelu(x, approximate=value)
    return keras.activations.get(_FUNCTIONS[value])


def _activate(layer: Any, setting: str, value: Any) -> None:
    """Change the `activation` argument of a layer."""
    if setting not in ("function", "approximate"):
        raise KeyError(setting)
    own, forced = vars(layer).pop(_FORCED_FUNCTION, (layer.activation, {}))
    layer.activation = own
    settings = argument_of(layer) or {}
    if setting == "approximate" and settings.get("function") != "gelu":
        raise KeyError(setting)
    # Another function hides how this one approximates; taken back, that is as it was.
    wanted = {n: v for n, v in {**forced, setting: value}.items() if settings.get(n) != v}
    if wanted:
        chosen = "function" if "function" in wanted else "approximate"
        layer.activation = _function(chosen, wanted[chosen])
        object.__setattr__(layer, _FORCED_FUNCTION, (own, wanted))


def _pad(layer: Any, kind: str, setting: str, value: Any) -> None:
    """Any amount on each side, in either framework's manner; means count zeros or not: Keras's own never do."""
    if "transpose" in kind or layer.data_format != "channels_last":
        raise KeyError(setting)
    rank, own = int(kind[-2]), layer.padding
    native = {"padding": own, "count_padding": False} if kind.startswith("average") else {"padding": own}
    wanted = {**native, **vars(layer).get(FORCED, {}), setting: value}
    window = layer.pool_size if "pool" in kind else layer.kernel_size
    settings = (window, layer.strides, getattr(layer, "dilation_rate", 1))
    sizes = [numbers(item, rank) for item in settings]
    sides(wanted["padding"], (1,) * rank, *sizes)  # raises where it is no padding
    filling = -math.inf if kind.startswith("max_pool") else 0.0

    def make(call: Any) -> Any:
        def padded(x: tf.Tensor, *args: Any, **kwargs: Any) -> Any:
            pads = [(0, 0), *sides(wanted["padding"], tuple(x.shape[1:-1]), *sizes), (0, 0)]
            layer.padding = "valid"
            try:
                around = tf.pad(x, pads, constant_values=tf.constant(filling, x.dtype))
                result = call(around, *args, **kwargs)
                if not wanted.get("count_padding", True):
                    result = result / call(tf.pad(tf.ones_like(x), pads))
            finally:
                layer.padding = own
            return result

        return padded

    for name in native:
        _force(layer, name, None, None)
    if wanted != native:
        _force(layer, setting, value, make)
        vars(layer)[FORCED].update(wanted)


def _drop_in_cells(layer: Any, setting: str, value: float) -> None:
    """Have the cells of a recurrent layer drop nothing, or as they do; masks are drawn in either case, and counted."""
    forced = vars(layer).get(FORCED, {})
    object.__setattr__(layer, FORCED, forced)
    method, inner = _CELL_MASKS[setting], [layer]
    if isinstance(layer, keras.layers.Bidirectional):
        inner = [layer.forward_layer, layer.backward_layer]
    forced.pop(setting, None)
    for cell in (each.cell for each in inner):
        vars(cell).pop(method, None)
        if value != settings_of(layer)[setting]:
            object.__setattr__(cell, method, _masking_nothing(getattr(cell, method)))
            forced[setting] = value


def _masking_nothing(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: tf.nest.map_structure(tf.ones_like, own(x))


def _runs(mode: str | int) -> Any:
    """What makes a batch norm run in a mode: 'own', 'inference', or in so many parts of its batch."""
    return (
        {"own": None, "inference": _in_inference}[mode]
        if isinstance(mode, str)
        else partial(_in_parts, count=mode)
    )


def _in_parts(call: Any, count: int) -> Any:
    """A layer that is given so many parts of its batch one after the other."""

    def in_parts(x: tf.Tensor, training: bool | None = None, mask: Any = None) -> Any:
        del mask
        return tf.concat([call(part, training=training) for part in tf.split(x, count)], 0)

    return in_parts


def _in_inference(call: Any) -> Any:
    """A layer that runs as in inference, whatever the mode of the pass is."""

    def evaluated(x: tf.Tensor, training: bool | None = None, mask: Any = None) -> Any:
        del training
        return call(x, training=False, mask=mask)

    return evaluated


def _with_unbiased_variance(call: Any) -> Any:
    """A batch norm that keeps the unbiased variance, as torch's does (row 3)."""
    layer = call.__self__

    def normalized(x: tf.Tensor, training: bool | None = None, mask: Any = None) -> Any:
        before = layer.moving_variance.numpy()
        result = call(x, training=training, mask=mask)
        if training and layer.trainable:
            axes = [axis for axis in range(len(x.shape)) if axis != layer.axis % len(x.shape)]
            count = float(tf.size(x)) / x.shape[layer.axis]
            variance = tf.math.reduce_variance(x, axes) * tf.constant(count / (count - 1), x.dtype)
            layer.moving_variance.assign(before * layer.momentum + variance * (1 - layer.momentum))
        return result

    return normalized
