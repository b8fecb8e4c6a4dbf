"""Collective operations of TensorFlow: its ring on CPUs, NCCL on GPUs. One process, one device and thread a rank.

tf.distribute speaks to the same operations (tf.raw_ops.Collective*). There is none for reduce, scatter,
gather and barrier, and reduce-scatter has no CPU kernel: these are built from the others.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from parity.common.planning.collectives.bench import Plan, conduct
from parity.common.planning.collectives.operations import ROOT
from parity.common.spec import Placement
from parity.tf_impl import runtime

_CALLS = {
    "broadcast": "CollectiveBcastSendV2, RecvV2",
    "reduce": "built from CollectiveReduceV2",
    "all_reduce": "CollectiveReduceV2",
    "scatter": "built from CollectiveBcastSendV2, RecvV2",
    "gather": "built from CollectiveGatherV2",
    "all_gather": "CollectiveGatherV2",
    "reduce_scatter": "built from CollectiveAllToAllV2 and a sum",
    "barrier": "built from CollectiveReduceV2",
}
_GROUP_KEY = 1


class Group:
    """This rank's end of the group; see `parity.common.planning.collectives.bench.Group`."""

    def __init__(self, rank: int, plan: Plan, device: str) -> None:
        self.rank, self.ranks, self.device = rank, plan.ranks, device
        self._gpu, self._timeout = device.startswith("GPU"), plan.timeout_seconds
        # All ranks run the same operations in the same order, so counting is agreeing.
        self._instances = 0
        self._one = self.tensor(np.ones(1, np.float32))

    def tensor(self, array: np.ndarray) -> tf.Tensor:
        with tf.device(self.device):
            return tf.identity(tf.constant(array))

    def array(self, tensor: tf.Tensor) -> np.ndarray:
        return np.array(tensor)

    def wait(self) -> None:
        if self._gpu:
            tf.test.experimental.sync_devices()

    def how(self, operation: str) -> str:
        return (
            "CollectiveReduceScatterV2" if operation == "reduce_scatter" and self._gpu else _CALLS[operation]
        )

    def prepare(self, operation: str, tensor: Any) -> Callable[[], Any]:
        run = getattr(self, f"_{operation}")

        def on_device() -> Any:
            with tf.device(self.device):
                return run(tensor)

        return on_device

    def _facts(self, ordered: bool = True) -> dict[str, Any]:
        """What every collective operation is told; the instance is a new one each time."""
        self._instances += 1
        with tf.device("CPU:0"):
            facts = {
                "group_size": tf.constant(self.ranks, tf.int32),
                "group_key": tf.constant(_GROUP_KEY, tf.int32),
                "instance_key": tf.constant(self._instances, tf.int32),
            }
        hint = "nccl" if self._gpu else "ring"
        more = {"ordering_token": []} if ordered else {}
        return {**facts, **more, "communication_hint": hint, "timeout_seconds": self._timeout}

    def _broadcast(self, x: tf.Tensor) -> tf.Tensor:
        facts = self._facts(ordered=False)
        if self.rank == ROOT:
            return tf.raw_ops.CollectiveBcastSendV2(input=x, **facts)
        return tf.raw_ops.CollectiveBcastRecvV2(T=x.dtype, shape=x.shape, **facts)

    def _all_reduce(self, x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.CollectiveReduceV2(input=x, merge_op="Add", final_op="Id", **self._facts())

    def _reduce(self, x: tf.Tensor) -> tf.Tensor | None:
        total = self._all_reduce(x)
        return total if self.rank == ROOT else None

    def _scatter(self, x: tf.Tensor) -> tf.Tensor:
        return tf.split(self._broadcast(x), self.ranks)[self.rank]

    def _all_gather(self, x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.CollectiveGatherV2(input=x, **self._facts())

    def _gather(self, x: tf.Tensor) -> tf.Tensor | None:
        whole = self._all_gather(x)
        return whole if self.rank == ROOT else None

    def _reduce_scatter(self, x: tf.Tensor) -> tf.Tensor:
        if self._gpu:
            return tf.raw_ops.CollectiveReduceScatterV2(
                input=x, merge_op="Add", final_op="Id", **self._facts()
            )
        parts = tf.reshape(x, (self.ranks, -1))
        return tf.reduce_sum(tf.raw_ops.CollectiveAllToAllV2(input=parts, **self._facts()), 0)

    def _barrier(self, x: None) -> None:
        del x
        # Reading the number waits for it, on a GPU too.
        self._all_reduce(self._one).numpy()


def measure(plan: Plan, folder: Path) -> None:
    """Run a plan with all its ranks, as threads of this process."""
    placement = Placement.parse(
        {"framework": "tensorflow", "strategy": "mirrored", "replicas": plan.ranks, "device": plan.device}
    )
    runtime.configure(placement)
    devices = runtime.device_names(placement)

    def rank(number: int) -> None:
        conduct(plan, Group(number, plan, devices[number]), folder)

    with ThreadPoolExecutor(plan.ranks) as threads:
        list(threads.map(rank, range(plan.ranks)))
