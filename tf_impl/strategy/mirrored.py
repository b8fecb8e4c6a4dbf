"""MirroredStrategy: all replicas in one process. MultiWorkerMirroredStrategy: several that meet through TF_CONFIG."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from parity.common.spec import Placement
from parity.tf_impl import runtime
from parity.tf_impl.strategy.base import Strategy
from parity.tf_impl.strategy.loopback import accept_only_this_machine
from parity.tf_impl.strategy.rendezvous import meeting
from parity.tf_impl.strategy.watchdog import listens

if TYPE_CHECKING:
    from parity.tf_impl.model import Model

_CROSS_DEVICE = {
    "one_device": tf.distribute.ReductionToOneDevice,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "nccl": tf.distribute.NcclAllReduce,
}
_LEAVE_SECONDS = 10
_Kind = tf.distribute.experimental.CommunicationImplementation
_COMMUNICATION = {"auto": _Kind.AUTO, "ring": _Kind.RING, "nccl": _Kind.NCCL}


class Mirrored(Strategy):
    """Replicas on the devices of this process, variables mirrored on each."""

    def _native(self) -> tf.distribute.Strategy:
        # Always named: the default collective breaks a second strategy in the same process on CPU.
        return tf.distribute.MirroredStrategy(
            runtime.device_names(self.placement),
            cross_device_ops=_CROSS_DEVICE[self.placement.options.cross_device](),
        )


class MultiWorker(Strategy):
    """Replicas on the devices of several processes, sums through collectives between them."""

    _workers: Sequence[str] = ()

    def _native(self) -> tf.distribute.Strategy:
        placement = self.placement
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=_COMMUNICATION[placement.options.communication],
            timeout_seconds=float(placement.timeout_seconds),
        )
        if placement.processes == 1:
            os.environ.pop("TF_CONFIG", None)
            return _native(placement, options)
        with meeting(placement, self.place) as self._workers:
            task = {"type": "worker", "index": self.rank}
            handler = signal.getsignal(signal.SIGTERM)
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": self._workers}, "task": task})
            native = _native(placement, options)
            # TensorFlow takes it to announce a preemption, and would go on.
            signal.signal(signal.SIGTERM, handler)
            own = self._workers[self.rank]
            if own.startswith("127.0.0.1:"):
                accept_only_this_machine(int(own.rpartition(":")[2]))
            return native

    def barrier(self) -> None:
        if self.placement.processes > 1:
            self.native.run(lambda: self.sum([tf.ones([])]))

    def agreed(self, values: Sequence[float]) -> list[float]:
        if self.placement.processes == 1:
            return list(values)
        # Each of a worker's replicas adds its worker's numbers.
        summed = self.native.run(lambda: self.sum([tf.constant(values, tf.float64)])[0])
        own = len(self.local_replicas)
        return [float(value) / own for value in np.array(self.unpack(summed)[0])]

    def close(self, model: Model) -> None:
        """Leave together. The first worker serves the others, so it goes last."""
        del model
        self.barrier()
        deadline = time.monotonic() + _LEAVE_SECONDS
        while self.rank == 0 and any(map(listens, self._workers[1:])) and time.monotonic() < deadline:
            time.sleep(0.02)


def _native(placement: Placement, options: Any) -> tf.distribute.Strategy:
    """TensorFlow's strategy over the devices of this worker.

    By itself it takes all GPUs that the process sees, or one CPU device. Only for more CPU devices
    does it need to be told, and there is no public way.
    """
    # Named, not found by TensorFlow: a scheduler's own resolver may put the workers in another order.
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    names = runtime.device_names(placement)[: placement.replicas_per_process]
    if names == ["CPU:0"] or runtime.uses_gpu(placement):
        return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    from tensorflow.python.distribute import collective_all_reduce_strategy as stock

    class Extended(stock.CollectiveAllReduceExtended):
        def _initialize_local_devices(self, resolver: Any, worker_device: str) -> tuple:
            del resolver
            return tuple(f"{worker_device}/device:{name}" for name in names), "CPU"

    class Workers(tf.distribute.MultiWorkerMirroredStrategy):
        def __init__(self) -> None:
            tf.distribute.Strategy.__init__(self, Extended(self, resolver, options))

    return Workers()
