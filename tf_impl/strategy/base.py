"""What training needs of any strategy; by itself, one device alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from parity.common.execution.process_context import process_context
from parity.common.spec import Placement
from parity.tf_impl import runtime
from parity.tf_impl.strategy.values import ReplicaValues

if TYPE_CHECKING:
    from parity.tf_impl.model import Model


class Strategy(ReplicaValues):
    """A tf.distribute strategy behind the few things that training needs of it."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.place = place = process_context(placement)
        self.rank = place.rank
        self.native = self._native()

    def _native(self) -> tf.distribute.Strategy:
        return tf.distribute.OneDeviceStrategy(runtime.device_names(self.placement)[0])

    @property
    def local_replicas(self) -> range:
        """The replicas that this process holds."""
        first = self.rank * self.placement.replicas_per_process
        return range(first, first + self.placement.replicas_per_process)

    @property
    def recorded_replicas(self) -> range:
        """The replicas that this process speaks for: each replica has one process that does."""
        return self.local_replicas

    def sum(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sums over the replicas, on every replica. Call it inside a replica's step."""
        if self.placement.replicas == 1:
            return values
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)

    def barrier(self) -> None:
        """Wait for all processes."""

    def agreed(self, values: Sequence[float]) -> list[float]:
        """Of some numbers of each process their sums over the processes; every one must call it."""
        return list(values)

    def close(self, model: Model) -> None:
        """Nothing to leave: the replicas live in this process."""
