"""Experiments on the calls of a live model's layers: without the masks that Keras hands on or is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend

from parity.common.external.process.altering import Altering, Ways
from parity.tf_impl.external import names

_MASKS = ("mask", "attention_mask", "query_mask", "value_mask", "key_mask", "padding_mask")


@contextmanager
def altered(model: keras.Layer, wanted: Mapping[int, str], visited: Callable[[], int]) -> Iterator[Altering]:
    """Have some calls of a pass made otherwise; the arguments are those of `Altering`."""
    altering = Altering(wanted, visited)
    paths = {id(layer): path for path, layer in names.layers(model).items()}
    calling = keras.Layer.__call__
    mode = [False]

    def called(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        stock = partial(calling, layer, *args, **kwargs)
        path = paths.get(id(layer))
        if layer is model:
            mode.append(bool(kwargs.get("training")))
        ways = {} if path is None or altering.over else _ways(layer, calling, args, kwargs)
        if isinstance(layer, keras.layers.Dropout) and path is not None and not altering.over:
            ways |= _dropped(layer, calling, args, kwargs, mode[-1])
        return altering.call(path or "", ways, stock) if ways else stock()

    with ExitStack() as stack:
        stack.callback(setattr, keras.Layer, "__call__", calling)
        keras.Layer.__call__ = called
        yield altering


def _ways(layer: keras.Layer, calling: Callable[..., Any], args: Any, kwargs: Any) -> Ways:
    ways: Ways = {}
    tensors = [each for each in tf.nest.flatten((args, kwargs)) if tf.is_tensor(each)]
    given = [name for name in _MASKS if kwargs.get(name) is not None]
    if given or any(backend.get_keras_mask(each) is not None for each in tensors):
        plain = tf.nest.map_structure(lambda each: tf.identity(each) if tf.is_tensor(each) else each, args)
        rest = {name: None if name in given else value for name, value in kwargs.items()}
        ways["unmasked"] = (
            "is given a mask, and what stands for it in torch is not",
            lambda: _masked_like(calling(layer, *plain, **rest), layer, tensors),
        )
    if kwargs.get("use_causal_mask"):
        text = "looks at earlier positions only, and what stands for it in torch at later ones too"
        ways["not causal"] = (text, partial(calling, layer, *args, **{**kwargs, "use_causal_mask": False}))
    return ways


def _masked_like(result: Any, layer: keras.Layer, given: Sequence[Any]) -> Any:
    """A layer's result with the mask of its input, where such a layer hands it on to those behind it."""
    if layer.supports_masking and given and tf.is_tensor(result) and result.shape[:2] == given[0].shape[:2]:
        backend.set_keras_mask(result, backend.get_keras_mask(given[0]))
    return result


def _dropped(
    layer: keras.layers.Dropout, calling: Callable[..., Any], args: Any, kwargs: Any, training: bool
) -> Ways:
    """A layer that drops: by the mode of the model, or not at all."""
    rest = {name: value for name, value in kwargs.items() if name != "training"}
    fixed = "does not go by the mode of the model, and torch's does: it is to drop in training only"
    text = f"drops a share of {layer.rate:g}, and torch drops nothing there"
    return {
        "by mode": (fixed, partial(calling, layer, *args[:1], **rest, training=training)),
        "absent": (text, partial(calling, layer, *args[:1], **rest, training=False)),
    }
