"""MirroredStrategy: all replicas in one process. MultiWorkerMirroredStrategy: several that meet through TF_CONFIG."""

from __future__ import annotations

import contextlib
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
from parity.tf_impl.private_names import CollectiveReplicaLauncher, context, stock_workers
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
_FINISHED = "parity/finished"
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

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        # Graphs of `agreed`, by how many numbers they sum.
        self._sums: dict[int, Any] = {}

    def _native(self) -> tf.distribute.Strategy:
        placement = self.placement
        # Without TensorFlow's timeout, which costs a thread for each collective: see deadline.py. And with the keys that
        # collectives got when their graph was traced, which all workers do in one order: of a new key in each step,
        # TensorFlow keeps 1.6 kB for ever.
        CollectiveReplicaLauncher._prefer_unique_instance_key = False
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=_COMMUNICATION[placement.options.communication]
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
        self.agreed([0.0])

    def agreed(self, values: Sequence[float]) -> list[float]:
        if self.placement.processes == 1:
            return list(values)
        # Each of a worker's replicas adds its worker's numbers.
        count, own = len(values), len(self.local_replicas)
        if count not in self._sums:
            self._sums[count] = self._sum_of(count)
        summed = self._sums[count](tf.constant(values, tf.float64))
        return [float(value) / own for value in np.array(summed)]

    def _sum_of(self, count: int) -> Any:
        """The graph that sums so many numbers over the replicas; of one key, collectives have one shape."""

        def summed(values: tf.Tensor) -> tf.Tensor:
            return self.unpack(self.native.run(lambda: self.sum([tf.identity(values)])[0]))[0]

        return tf.function(
            summed, [tf.TensorSpec([count], tf.float64)], autograph=False
        ).get_concrete_function()

    def close(self, model: Model) -> None:
        """Leave together. The first worker serves the others, so it goes last."""
        del model
        self.barrier()
        if self.placement.processes == 1:
            return
        # Who has the barrier's sum may still be asked for its part of it.
        service = context.context()
        with contextlib.suppress(tf.errors.OpError):
            service.set_config_key_value(f"{_FINISHED}/{self.rank}", "")
            for rank in range(self.placement.processes):
                service.get_config_key_value(f"{_FINISHED}/{rank}", _LEAVE_SECONDS * 1000)
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

    class Extended(stock_workers.CollectiveAllReduceExtended):
        def _initialize_local_devices(self, resolver: Any, worker_device: str) -> tuple:
            del resolver
            return tuple(f"{worker_device}/device:{name}" for name in names), "CPU"

    class Workers(tf.distribute.MultiWorkerMirroredStrategy):
        def __init__(self) -> None:
            tf.distribute.Strategy.__init__(self, Extended(self, resolver, options))

    return Workers()
