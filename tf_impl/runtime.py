"""Devices, threads and determinism of this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# TensorFlow reads this once, while it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from common.errors import RunError
from common.launch.process import keep_freed_memory, pin_to_cores
from common.spec import Placement

# What the first `configure` of this process decided.
_STARTED: dict[str, bool] = {}


def configure(placement: Placement, capacity: int | None = None) -> None:
    """Make at least `placement.replicas` devices and set threads; the first call of a process decides.

    Args:
        placement: device kind and threads per replica.
        capacity: devices to make for later runs in this process; default: the placement's replicas.

    Raises:
        RunError: fewer devices than replicas.
    """
    keep_freed_memory()
    # TensorFlow advises against running a strategy eagerly; evaluating one batch is cheaper so.
    tf.get_logger().setLevel("ERROR")
    gpus = tf.config.list_physical_devices("GPU")
    if placement.device == "gpu" and len(gpus) < placement.replicas:
        raise RunError(
            f"{placement.label} needs {placement.replicas} GPUs, this machine has {len(gpus)};"
            " use fewer replicas or --device cpu"
        )
    if uses_gpu(placement):
        tf.config.experimental.enable_op_determinism()
        return
    if not _STARTED:
        try:
            _start_cpu(placement, max(capacity or 0, placement.replicas))
        except RuntimeError:
            raise RunError("TensorFlow has already started in this process; train in a new one") from None
    devices = len(tf.config.list_logical_devices("CPU"))
    if devices < placement.replicas:
        raise RunError(
            f"{placement.label} needs {placement.replicas} devices, this process was started with {devices};"
            " start a new process for more replicas"
        )


def _start_cpu(placement: Placement, capacity: int) -> None:
    tf.config.set_visible_devices([], "GPU")
    # Before TensorFlow starts its threads, which keep the cores of the thread that starts them.
    pinned = pin_to_cores(placement, range(placement.replicas))
    # One kernel at a time a replica: with more, a single replica would use the other's core.
    tf.config.threading.set_intra_op_parallelism_threads(placement.threads_per_replica)
    tf.config.threading.set_inter_op_parallelism_threads(capacity)
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(capacity)]
    tf.config.set_logical_device_configuration(cpu, logical)
    _STARTED["pinned"] = pinned


def uses_gpu(placement: Placement) -> bool:
    """Whether the replicas run on GPUs: 'auto' takes them where there are enough."""
    if placement.device == "auto":
        return len(tf.config.list_physical_devices("GPU")) >= placement.replicas
    return placement.device == "gpu"


def device_names(placement: Placement) -> list[str]:
    """The devices that the placement's replicas run on, in replica order."""
    kind = "GPU" if uses_gpu(placement) else "CPU"
    return [f"{kind}:{index}" for index in range(placement.replicas)]


def thread_counts() -> dict[str, int]:
    """The thread settings that decide speed."""
    return {
        "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "pinned": int(_STARTED.get("pinned", False)),
    }


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {"tensorflow": tf.__version__, "keras": keras.__version__, "numpy": np.__version__}


def describe() -> dict[str, Any]:
    """What `parity doctor` shows of this framework."""
    return {
        "versions": versions(),
        "gpus": [device.name for device in tf.config.list_physical_devices("GPU")],
        "strategies": {"mirrored": "replicas on GPUs, or on logical CPU devices"},
    }


class ScalarWriter:
    """TensorBoard scalars."""

    def __init__(self, folder: Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder))

    def step(self, step: int, values: dict[str, float]) -> None:
        """Write one step's scalars."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
