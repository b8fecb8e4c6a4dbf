"""The calls of a live Keras model that drop, given keyed masks: layers of dropout, attention's weights, `keras.random.dropout`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.external.process.dropping import Dropping, noise_shape
from parity.common.external.process.exact import ExactFunctions
from parity.common.spec.layers import KeyedDropout
from parity.tf_impl.external.calling import array_of
from parity.tf_impl.layers.random import keep_mask
from parity.tf_impl.private_names import (
    BaseSpatialDropout,
    backend,
    current_path,
    in_symbolic_scope,
    path_of,
)


class _Passes(threading.local):
    """The pass of this thread: each replica of a strategy has its own."""

    dropping: Dropping | None = None


_PASSES = _Passes()
_STOCK = ExactFunctions()
_call, _spatial, _dropout = keras.layers.Dropout.call, BaseSpatialDropout.call, backend.random.dropout


def _pass() -> Dropping | None:
    """The pass that a call is of; None where it is of none, as Keras's that finds out the shapes of a model that is not built yet."""
    return None if in_symbolic_scope() else _PASSES.dropping


@contextmanager
def keyed(
    model: keras.Layer,
    plan: Sequence[KeyedDropout] | None,
    context: Context,
    seen: list[dict[str, Any]] | None = None,
) -> Iterator[Dropping]:
    """Have each call of a pass that drops given its planned mask; the arguments are those of `Dropping`."""
    del model
    dropping = Dropping(plan, context, seen)
    before, _PASSES.dropping = _PASSES.dropping, dropping
    try:
        with _STOCK.within():
            yield dropping
    finally:
        _PASSES.dropping = before


def _dropped(
    dropping: Dropping, owner: str, x: Any, rate: float, noise: Sequence[Any] | None, active: bool
) -> Any:
    x = tf.convert_to_tensor(x)
    shared = [
        axis
        for axis, (size, whole) in enumerate(zip(noise or (), x.shape, strict=False))
        # The size of the batch may be a tensor.
        if isinstance(size, int) and size == 1 and whole != 1
    ]
    planned = dropping.next(owner, x, rate, shared, active)
    if planned is None:
        return x
    if rate >= 1:
        return tf.zeros_like(x)

    def mask() -> tf.Tensor:
        drawn = keep_mask(x, dropping.context, planned.key, noise_shape(planned, len(x.shape), shared), rate)
        return drawn if shared else tf.reshape(drawn, tf.shape(x))

    return x * dropping.drawn(mask, array_of, rate, shared)


def _drop(layer: Any, inputs: Any, training: Any = False) -> Any:
    dropping = _pass()
    if dropping is None:
        return _call(layer, inputs, training)
    return _dropped(
        dropping, path_of(layer) or layer.name, inputs, layer.rate, layer.noise_shape, bool(training)
    )


def _drop_spatially(layer: Any, inputs: Any, training: Any = False) -> Any:
    dropping = _pass()
    if dropping is None:
        return _spatial(layer, inputs, training)
    noise = layer._get_noise_shape(inputs)
    return _dropped(dropping, path_of(layer) or layer.name, inputs, layer.rate, noise, bool(training))


def _random_dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
    dropping = _pass()
    if dropping is None:
        return _dropout(inputs, rate, noise_shape, seed)
    return _dropped(dropping, current_path() or "", inputs, rate, noise_shape, True)


_STOCK.replacements = (
    (keras.layers.Dropout, "call", _drop),
    (BaseSpatialDropout, "call", _drop_spatially),
    (backend.random, "dropout", _random_dropout),
)
