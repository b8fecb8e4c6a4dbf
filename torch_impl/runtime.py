"""Devices, threads and determinism of this process."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from parity.common.base.errors import RunError
from parity.common.execution.operating_system import keep_freed_memory, on_each_node
from parity.common.spec import Placement
from parity.common.spec.capabilities import refusal
from parity.torch_impl.private_names import FSDP2_ON_CPU, has_compiler


def configure(placement: Placement, capacity: int | None = None, deterministic: bool = True) -> None:
    """Set threads, and check that there is a device for every replica.

    Args:
        placement: device kind and threads per replica.
        capacity: not needed here; TensorFlow's twin makes devices for later runs.
        deterministic: whether GPUs' kernels give the same bits every time.

    Raises:
        RunError: fewer devices than replicas.
    """
    del capacity
    keep_freed_memory()
    torch.set_num_threads(placement.threads_per_replica)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if placement.device == "gpu" and gpus < _needed(placement):
        raise RunError(
            f"{placement.label} needs {_needed(placement)} GPUs, this machine has {gpus};"
            " use fewer replicas or --device cpu"
        )
    if (why := refusal(placement, _lacks(uses_gpu(placement)))) is not None:
        raise RunError(why)
    if uses_gpu(placement):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(deterministic)


def allow_tf32(allowed: bool) -> None:
    """Whether GPUs may round the operands of float32 products to 11 bits.

    Not left to defaults: PyTorch's are yes for convolutions and no for matmul, TensorFlow's yes. Products
    of low numbers are always summed in float32.
    """
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def uses_gpu(placement: Placement) -> bool:
    """Whether the replicas run on GPUs: 'auto' takes them where there are enough."""
    if placement.device == "auto":
        return torch.cuda.is_available() and torch.cuda.device_count() >= _needed(placement)
    return placement.device == "gpu"


def _needed(placement: Placement) -> int:
    """How many GPUs a process must see: those of its whole machine, or its own where SLURM hides the others."""
    bound = {"SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND"} & os.environ.keys()
    own = placement.launcher == "srun" and bound
    return placement.replicas_per_process if own else on_each_node(placement)


def launches_ahead(placement: Placement) -> bool:
    """Whether a step may return before all of it is done: on a GPU, and where norms are summed over shards."""
    return uses_gpu(placement) or placement.strategy in ("fsdp1", "fsdp2", "tensor_parallel", "deepspeed")


def _lacks(gpu: bool) -> dict[str, Any]:
    """What placements cannot have here, as `refusal` takes it. gpu: whether their replicas run on GPUs."""
    return {"no_gpu": not gpu, "old_fsdp2": not gpu and not FSDP2_ON_CPU and torch.__version__}


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
    return {
        "versions": versions(),
        "gpus": gpus,
        "collectives": "nccl" if gpus else "gloo",
        "lacks": {**_lacks(bool(gpus)), "no_compiler": not has_compiler()},
    }
