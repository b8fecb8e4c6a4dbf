"""Float64 where a user's code asks for float32, or TensorFlow takes that by itself: so a comparison in float64 is one.

A mask that is cast to float32 would meet float64 activations, which TensorFlow refuses; in a float32 model the cast does nothing.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.external.process.exact import ExactFunctions
from parity.tf_impl.private_names import backend, image_ops

WIDE = ExactFunctions()
# What says of a function, as a layer may hold it since it was built, what is called instead while constants are exact.
held: list[Callable[[Any], Any]] = []
_FLOAT32 = tf.float32
# They know which of their numbers are float32. AutoGraph makes the calls of code that it has converted, which is a user's.
_FRAMEWORKS, _AUTOGRAPH = ("keras.src.", "tf_keras.", "tensorflow."), "tensorflow.python.autograph."


def wide(dtype: Any, caller: FrameType) -> Any:
    """Return the type that a caller asks for, float64 for a user's float32; None stays None."""
    try:
        is_float32 = dtype is not None and tf.as_dtype(dtype) == _FLOAT32
    except TypeError:
        return dtype
    return tf.float64 if is_float32 and WIDE.on and _is_users(caller) else dtype


def _is_users(caller: FrameType) -> bool:
    name = caller.f_globals.get("__name__", "")
    return name.startswith(_AUTOGRAPH) or not name.startswith(_FRAMEWORKS)


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is asked for a type, or makes float32 tensors of a user's numbers."""
    signature = inspect.signature(function)
    stock = function
    default = signature.parameters["dtype"].default if "dtype" in signature.parameters else None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        function = held[0](stock) if held else stock
        if not _is_users(caller):
            return function(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        dtype = given.arguments.get("dtype", default)
        if dtype is not None:
            given.arguments["dtype"] = wide(dtype, caller)
        # Python's numbers take the type of the tensors beside them; in a graph only of those before them.
        alone = dtype is None and not any(map(_has_tensor, given.arguments.values()))
        wide_ones = any(getattr(value, "dtype", None) == tf.float64 for value in given.arguments.values())
        first = True
        for name, value in given.arguments.items():
            first = first and getattr(value, "dtype", None) != tf.float64
            number = wide_ones and first and isinstance(value, float)
            given.arguments[name] = np.float64(value) if number else _as_float64(value, alone)
        return function(*given.args, **given.kwargs)

    return call


def _has_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_tensor, value))
    return tf.is_tensor(value) or isinstance(value, tf.Variable | keras.Variable | keras.KerasTensor)


def _as_float64(value: Any, alone: bool) -> Any:
    """Floats of NumPy's, also in lists, as float64, and of Python's where no tensor is beside them; whatever else as it is."""
    if isinstance(value, list | tuple) and not (alone and _is_plain(value)):
        parts = [_as_float64(each, alone) for each in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, np.ndarray | np.generic):
        return value.astype(np.float64) if value.dtype == np.float32 else value
    if not alone or not _is_plain(value):
        return value
    array = np.asarray(value)
    return array.astype(np.float64) if array.size and array.dtype in (np.float32, np.float64) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value)) and len({np.shape(each) for each in value}) < 2
    return isinstance(value, float | int | np.generic | np.ndarray)


_stock_one_hot = tf.one_hot


def _one_hot(indices: Any, depth: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """Of float64 where no type is asked for, and no values that would have one."""
    caller = sys._getframe(1)
    plain = dtype is None and not args and not {"on_value", "off_value"} & kwargs.keys() and _is_users(caller)
    dtype = tf.float64 if plain else wide(dtype, caller)
    return _stock_one_hot(indices, depth, *args, dtype=dtype, **kwargs)


def _window(of: Callable[..., Any]) -> Callable[..., Any]:
    """As NumPy has a window, which Keras makes of float32."""
    return lambda x, *args: tf.constant(of(int(x), *args))


def _view_as_complex(x: Any) -> Any:
    """Of (..., 2) real and imaginary parts, which Keras makes complex64; symbolic tensors have no numbers."""
    x = x if isinstance(x, keras.KerasTensor) else tf.convert_to_tensor(x)
    return tf.complex(x[..., 0], x[..., 1]) if getattr(x, "dtype", None) == tf.float64 else _stock_complex(x)


def _resize(images: Any, *args: Any, **kwargs: Any) -> Any:
    """As `tf.image.resize`, whose result is float32 but of the nearest elements, in the type of images that are float64."""
    images = tf.convert_to_tensor(images)
    resized = _stock_resize(images, *args, **kwargs)
    return tf.cast(resized, tf.float64) if images.dtype == tf.float64 else resized


def _convert_image(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Any:
    """As `tf.image.convert_image_dtype`, but for what would compute with the images in float32."""
    image = tf.convert_to_tensor(image)
    if image.dtype == tf.float64 and sys._getframe(1).f_code.co_name in _IN_FLOAT64:
        return image
    return _stock_convert_image(image, dtype, saturate, name)


def _response_normalization(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> Any:
    """As `tf.nn.local_response_normalization`, (..., channels), which has no kernel for float64."""
    input = tf.convert_to_tensor(input)
    if input.dtype != tf.float64:
        return _stock_normalization(input, depth_radius, bias, alpha, beta, name)
    channels = input.shape[-1]
    near = np.abs(np.arange(channels)[:, None] - np.arange(channels)) <= depth_radius
    sums = tf.tensordot(tf.square(input), near.astype(np.float64), 1)
    return input / (bias + alpha * sums) ** beta


_stock_complex, _stock_normalization = keras.ops.view_as_complex, tf.nn.local_response_normalization
_stock_resize, _stock_convert_image = tf.image.resize, image_ops.convert_image_dtype
# They take functions, or tell of tensors, and make none of numbers; the convolution is ours, see `load.prepare`.
_AS_THEY_ARE = (
    "function",
    "convolution",
    "py_function",
    "numpy_function",
    "is_tensor",
    "custom_gradient",
    "recompute_grad",
    "get_static_value",
)
_IN_FLOAT64 = ("ssim", "ssim_multiscale", "psnr")
_WINDOWS = ("bartlett", "blackman", "hamming", "hanning", "kaiser")


def _replacements() -> list[tuple[Any, str, Any]]:
    found: list[tuple[Any, str, Any]] = [(module, "float32", tf.float64) for module in (tf, tf.dtypes)]
    made: dict[Any, Any] = {}
    for owner in (tf, tf.math, tf.random, tf.linalg, tf.dtypes, tf.nn, tf.signal, keras.ops):
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if name not in _AS_THEY_ARE:
                found.append((owner, name, made.setdefault(function, _widened(function))))
    found.append((tf, "one_hot", _one_hot))
    found += [
        (backend.numpy, name, _window(getattr(np, name))) for name in _WINDOWS if hasattr(backend.numpy, name)
    ]
    found.append((tf.image, "resize", _resize))
    found += [(tf.nn, name, _response_normalization) for name in ("local_response_normalization", "lrn")]
    found += [
        (keras.ops, "view_as_complex", _view_as_complex),
        (image_ops, "convert_image_dtype", _convert_image),
    ]
    return found


WIDE.replacements = _replacements()
