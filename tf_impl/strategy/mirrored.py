"""MirroredStrategy: all replicas in one process."""

from __future__ import annotations

import tensorflow as tf

from parity.tf_impl import runtime
from parity.tf_impl.strategy.base import Strategy

_CROSS_DEVICE = {
    "one_device": tf.distribute.ReductionToOneDevice,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "nccl": tf.distribute.NcclAllReduce,
}


class Mirrored(Strategy):
    """Replicas on the devices of this process, variables mirrored on each."""

    def _native(self) -> tf.distribute.Strategy:
        # Always named: the default collective breaks a second strategy in the same process on CPU.
        return tf.distribute.MirroredStrategy(
            runtime.device_names(self.placement),
            cross_device_ops=_CROSS_DEVICE[self.placement.options.cross_device](),
        )
