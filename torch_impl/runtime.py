"""Devices, threads and determinism of this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.errors import MissingPackageError, RunError
from common.launch.process import keep_freed_memory
from common.spec import Placement


def configure(placement: Placement, capacity: int | None = None) -> None:
    """Set threads, and check that there is a device for every replica.

    Args:
        placement: device kind and threads per replica.
        capacity: not needed here; TensorFlow's twin makes devices for later runs.

    Raises:
        RunError: fewer devices than replicas.
    """
    del capacity
    keep_freed_memory()
    torch.set_num_threads(placement.threads_per_replica)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if placement.device == "gpu" and placement.launcher == "local" and gpus < placement.replicas:
        raise RunError(
            f"{placement.label} needs {placement.replicas} GPUs, this machine has {gpus};"
            " use fewer replicas or --device cpu"
        )
    if uses_gpu(placement):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.allow_tf32 = False


def uses_gpu(placement: Placement) -> bool:
    """Whether the replicas run on GPUs: 'auto' takes them where there are enough."""
    if placement.device == "auto":
        return torch.cuda.is_available() and torch.cuda.device_count() >= placement.replicas
    return placement.device == "gpu"


def device_names(placement: Placement) -> list[str]:
    """The devices that the placement's replicas run on, in replica order."""
    if not uses_gpu(placement):
        return ["cpu"] * placement.replicas
    return [f"cuda:{replica % torch.cuda.device_count()}" for replica in range(placement.replicas)]


def thread_counts() -> dict[str, int]:
    """The thread settings that decide speed."""
    return {
        "intra_op": torch.get_num_threads(),
        "inter_op": torch.get_num_interop_threads(),
        "cores": len(os.sched_getaffinity(0)),
    }


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {"torch": torch.__version__, "numpy": np.__version__}


def describe() -> dict[str, Any]:
    """What `parity doctor` shows of this framework."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    backend = "nccl" if gpus else "gloo"
    return {
        "versions": versions(),
        "gpus": gpus,
        "strategies": {
            "single": "one process",
            "ddp": f"one process a replica, {backend}",
            "fsdp2": f"one process a replica, {backend}, fully_shard",
        },
    }


class ScalarWriter:
    """TensorBoard scalars."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingPackageError(
                "--tensorboard needs tensorboard; run: pip install tensorboard"
            ) from None
        self._writer = SummaryWriter(str(folder))

    def step(self, step: int, values: dict[str, float]) -> None:
        """Write one step's scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
