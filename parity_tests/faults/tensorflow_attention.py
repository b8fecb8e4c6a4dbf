"""Faults of attention and of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from parity.common.spec import layers as spec
from parity.tf_impl.layers import attention, recurrent
from parity_tests.faults.tensorflow_base import fault
from parity_tests.faults.tensorflow_layers import as_float32, built_as


def _query(factor: Callable[[Any], float]) -> Any:
    """Multiply the queries by factor(layer)."""
    real = attention.Attention._mix

    def mix(self: Any, query: tf.Tensor, *rest: Any) -> tf.Tensor:
        return real(self, query * factor(self), *rest)

    return patch.object(attention.Attention, "_mix", mix)


@fault
def attention_scaled_by_the_width() -> Iterator[None]:  # 31: 1/sqrt(features) for 1/sqrt(features of a head)
    with _query(lambda layer: layer.node.spec.heads**-0.5):
        yield


@fault
def attention_scale_through_float32() -> Iterator[None]:  # 33: a Python float, made a tensor without a dtype
    with _query(lambda layer: as_float32(layer.size**-0.5) / layer.size**-0.5):
        yield


@fault
def softmax_over_the_wrong_axis() -> Iterator[None]:  # 31
    real = tf.nn.softmax
    with patch.object(tf.nn, "softmax", lambda x: real(x, axis=-2)):
        yield


@fault
def causal_mask_off_by_one() -> Iterator[None]:  # 31: each token sees the next one
    real = np.tri
    with patch.object(np, "tri", lambda *shape, **more: real(*shape, 1, **more)):
        yield


@fault
def causal_mask_forgotten() -> Iterator[None]:  # 31
    with built_as(spec.SelfAttention, causal=False):
        yield


@fault
def lstm_gates_swapped() -> Iterator[None]:  # 30: the order i, f, o, c
    real = recurrent.LSTM._step

    def swapped(gates: Any) -> Any:
        i, f, c, o = tf.split(gates, 4, -1)
        return tf.concat([i, f, o, c], -1)

    def step(self: Any, token: Any, state: Any, recur: Any) -> Any:
        return real(self, swapped(token), state, [lambda hidden: swapped(recur[0](hidden))])

    with patch.object(recurrent.LSTM, "_step", step):
        yield


@fault
def recurrent_bias_twice() -> Iterator[None]:  # 30: one bias loaded into both of the other framework's
    real = recurrent.Recurrent._tensor

    def tensor(self: Any, prefix: str, name: str) -> Any:
        found = real(self, prefix, name)
        return 2 * found if name == "bias" else found

    with patch.object(recurrent.Recurrent, "_tensor", tensor):
        yield
