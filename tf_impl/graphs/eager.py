"""Functions as graphs, or as they stand: a user's code may ask a tensor for its numbers, or count with the batch's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def graph_of(
    function: Callable[..., Any], signature: Sequence[tf.TensorSpec] | None = None
) -> Callable[..., Any]:
    """A function as a graph, or as it is where all runs eagerly."""
    if tf.config.functions_run_eagerly():
        return function
    # Called as it is: to find again which graph suits the arguments costs as much as a small step.
    return tf.function(function, signature, autograph=False).get_concrete_function()


def run_eagerly(on: bool) -> None:
    """Whether what is a graph otherwise runs as it stands in this process."""
    tf.config.run_functions_eagerly(on)
    # Then XLA, by which Keras computes convolutions of groups on a CPU, does not either: TensorFlow has no gradients of them.
    for nn in (tf.nn, tf.compat.v2.nn):  # Keras 2 takes it from there
        nn.convolution = _convolution if on else _whole_convolution


def _convolution(
    input: Any,
    filters: Any,
    strides: Any = None,
    padding: str = "VALID",
    data_format: str | None = None,
    **more: Any,
) -> Any:
    """As `tf.nn.convolution`, group by group where there are several."""
    axis = 1 if (data_format or "").startswith("NC") else -1
    groups = input.shape[axis] // filters.shape[-2]
    given = {"strides": strides, "padding": padding, "data_format": data_format, **more}
    if groups == 1:
        return _whole_convolution(input, filters, **given)
    parts = zip(tf.split(input, groups, axis), tf.split(filters, groups, -1), strict=True)
    return tf.concat([_whole_convolution(x, kernel, **given) for x, kernel in parts], axis)


_whole_convolution = tf.nn.convolution
