"""Devices, threads and determinism of this process."""

from __future__ import annotations

import os
from typing import Any

# TensorFlow reads this once, while it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from parity.common.base.errors import RunError
from parity.common.execution.operating_system import keep_freed_memory, pin_to_cores
from parity.common.execution.process_context import process_context
from parity.common.spec import Placement
from parity.common.spec.capabilities import refusal

# What the first `configure` of this process decided.
_STARTED: dict[str, bool] = {}


def configure(placement: Placement, capacity: int | None = None, deterministic: bool = True) -> None:
    """Make devices for the replicas of this process and set threads; the first call of a process decides.

    Args:
        placement: device kind and threads per replica.
        capacity: devices to make for later runs in this process; default: the placement's replicas.
        deterministic: whether GPUs' kernels give the same bits every time.

    Raises:
        RunError: fewer devices than replicas, or a collective library that this machine has no use for.
    """
    keep_freed_memory()
    # TensorFlow advises against running a strategy eagerly; evaluating one batch is cheaper so.
    tf.get_logger().setLevel("ERROR")
    # It adds a chain of terms in another order where nothing else reads a partial sum. What is read of
    # replica 0 alone, to record it, would so make its parameters differ from the others' by a rounding.
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    gpus = tf.config.list_physical_devices("GPU")
    if placement.device == "gpu" and len(gpus) < _replicas_here(placement):
        raise RunError(
            f"{placement.label} needs {_replicas_here(placement)} GPUs, this machine has {len(gpus)};"
            " use fewer replicas or --device cpu"
        )
    on_gpu = uses_gpu(placement)
    if (why := refusal(placement, {"no_gpu": not on_gpu})) is not None:
        raise RunError(why)
    devices = placement.replicas_per_process
    if _only_starts_others(placement) and (on_gpu or capacity is None):
        return
    if on_gpu:
        if placement.processes > 1 and not _STARTED:
            first = process_context(placement).local_rank * devices
            tf.config.set_visible_devices(gpus[first : first + devices], "GPU")
            _STARTED["gpu"] = True
        if deterministic:
            tf.config.experimental.enable_op_determinism()
        return
    if not _STARTED:
        try:
            _start_cpu(placement, max(capacity or 0, devices))
        except RuntimeError:
            raise RunError("TensorFlow has already started in this process; train in a new one") from None
    if placement.processes > 1:
        return  # to count the devices would start TensorFlow, before it has met the other workers
    made = len(tf.config.list_logical_devices("CPU"))
    if made < devices:
        raise RunError(
            f"{placement.label} needs {devices} devices, this process was started with {made};"
            " start a new process for more replicas"
        )


def _start_cpu(placement: Placement, capacity: int) -> None:
    tf.config.set_visible_devices([], "GPU")
    # Before TensorFlow starts its threads, which keep the cores of the thread that starts them.
    first = process_context(placement).local_rank * placement.replicas_per_process
    own = range(first, first + placement.replicas_per_process)
    pinned = not _only_starts_others(placement) and pin_to_cores(placement, own)
    # One kernel at a time a replica: with more, a single replica would use the other's core.
    tf.config.threading.set_intra_op_parallelism_threads(placement.threads_per_replica)
    tf.config.threading.set_inter_op_parallelism_threads(capacity)
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(capacity)]
    tf.config.set_logical_device_configuration(cpu, logical)
    _STARTED["pinned"] = pinned


def _only_starts_others(placement: Placement) -> bool:
    """Whether the processes of this placement are still to be started, by this one."""
    return process_context(placement).processes < placement.processes


def _replicas_here(placement: Placement) -> int:
    """Replicas on this machine."""
    return placement.replicas // placement.nodes


def launches_ahead(placement: Placement) -> bool:
    """Whether a call of a graph may return before it is done.

    On CPU not where workers meet: a lost one is to be noticed by the call that needs it.
    """
    return placement.processes == 1 or uses_gpu(placement)


def allow_tf32(allowed: bool) -> None:
    """Whether GPUs may round the operands of float32 products to 11 bits.

    Not left to defaults: PyTorch's are yes for convolutions and no for matmul, TensorFlow's yes.
    """
    tf.config.experimental.enable_tensor_float_32_execution(allowed)


def uses_gpu(placement: Placement) -> bool:
    """Whether the replicas run on GPUs: 'auto' takes them where there are enough."""
    if placement.device == "auto":
        return len(tf.config.list_physical_devices("GPU")) >= _replicas_here(placement)
    return placement.device == "gpu"


def device_names(placement: Placement) -> list[str]:
    """The devices that the placement's replicas run on, in replica order, as their processes call them."""
    kind = "GPU" if uses_gpu(placement) else "CPU"
    own = [f"{kind}:{index}" for index in range(placement.replicas_per_process)]
    return own * placement.processes


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
    gpus = [device.name for device in tf.config.list_physical_devices("GPU")]
    return {
        "versions": versions(),
        "gpus": gpus,
        "collectives": "nccl" if gpus else "ring",
        "lacks": {"no_gpu": not gpus},
    }
