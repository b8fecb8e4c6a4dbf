"""Functions of Keras and TensorFlow that stand for layers; see `common/external/lint/settings.py`."""

from __future__ import annotations

from typing import Any

from parity.common.spec.external.outline import Setting

Settings = dict[str, Setting]

_SMOOTH = ("silu", "mish", "selu", "sigmoid", "log_sigmoid", "tanh", "tanh_shrink", "softsign")
# Keras's functions by name: the canonical one, and the settings that its defaults mean.
FUNCTIONS: dict[str, Settings] = {
    **{name: {"function": name} for name in ("relu", "relu6", "hard_sigmoid", *_SMOOTH)},
    "leaky_relu": {"function": "leaky_relu", "negative_slope": 0.2},
    "gelu": {"function": "gelu", "approximate": False},
    "elu": {"function": "elu", "alpha": 1.0},
    "celu": {"function": "celu", "alpha": 1.0},
    "softplus": {"function": "softplus", "beta": 1.0},
    "hard_silu": {"function": "hard_swish"},
    "hard_tanh": {"function": "hard_tanh", "low": -1.0, "high": 1.0},
    "softmax": {"function": "softmax", "axis": -1},
    "log_softmax": {"function": "log_softmax", "axis": -1},
}
# Functions that are watched in a pass.
WATCHED = (*FUNCTIONS, "pad")
# Of backend.nn and tf.nn, whose defaults differ from those of keras.activations.
_DEFAULTS = {
    "leaky_relu": ("negative_slope", 0.2),
    "gelu": ("approximate", True),
    "elu": ("alpha", 1.0),
    "celu": ("alpha", 1.0),
    "softmax": ("axis", -1),
    "log_softmax": ("axis", -1),
}


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
    if name in _DEFAULTS:
        key, default = _DEFAULTS[name]
        if name == "gelu" and function.__module__.startswith("tensorflow"):
            default = False
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
