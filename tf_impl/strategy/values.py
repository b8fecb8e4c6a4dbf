"""Values of several replicas in one process: only TensorFlow's strategies hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def own_variable(shape: tuple[int, ...], dtype: Any) -> tf.Variable:
    """A variable of zeros of which each replica has its own; read from outside the replicas, it is the first one's."""
    return tf.Variable(
        tf.zeros(shape, dtype),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


class ReplicaValues:
    """One value for each local replica, put together and taken apart. native: the tf.distribute strategy."""

    native: tf.distribute.Strategy

    def distribute(self, value: Callable[[tf.distribute.ValueContext], Any]) -> Any:
        """One value a replica, computed on the host."""
        return self.native.experimental_distribute_values_from_function(value)

    def unpack(self, value: Any) -> list[Any]:
        """One element a local replica."""
        return list(self.native.experimental_local_results(value))
