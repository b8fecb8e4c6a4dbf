"""Parallelism, all of it: replicas, where they run, and sums over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from common.spec import Placement
from tf_impl import runtime

if TYPE_CHECKING:
    from tf_impl.model import Model


class Strategy:
    """A tf.distribute strategy behind the few things that training needs of it."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        # The default collective breaks a second strategy in the same process on CPU.
        self.native = tf.distribute.MirroredStrategy(
            runtime.device_names(placement),
            cross_device_ops=tf.distribute.ReductionToOneDevice(),
        )

    @property
    def local_replicas(self) -> range:
        """The replicas that this process holds."""
        return range(self.placement.replicas)

    def distribute(self, value: Callable[[tf.distribute.ValueContext], Any]) -> Any:
        """One value a replica, computed on the host."""
        return self.native.experimental_distribute_values_from_function(value)

    def sum(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sums over the replicas, on every replica. Call it inside a replica's step."""
        if self.placement.replicas == 1:
            return values
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)

    def close(self, model: Model) -> None:
        """Nothing to leave: the replicas live in this process."""

    def unpack(self, value: Any) -> list[Any]:
        """One element a local replica."""
        return list(self.native.experimental_local_results(value))


def open_strategy(placement: Placement) -> Strategy:
    """The strategy of a placement."""
    return Strategy(placement)
