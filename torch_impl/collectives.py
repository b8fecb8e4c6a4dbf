"""Collective operations of torch.distributed: gloo on CPUs, NCCL on GPUs. One process a rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from parity.common.planning.collectives.bench import Plan, conduct
from parity.common.planning.collectives.operations import ROOT
from parity.common.spec import Placement
from parity.torch_impl import runtime
from parity.torch_impl.private_names import all_gather, reduce_scatter
from parity.torch_impl.strategy import open_strategy

# Those of whole tensors, not of lists.
_SINGLE = ("all_gather", "reduce_scatter")


class Group:
    """This rank's end of the process group; see `parity.common.planning.collectives.bench.Group`."""

    def __init__(self, rank: int, plan: Plan, device: str) -> None:
        self.rank, self.ranks, self.device = rank, plan.ranks, device

    def tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self.device)

    def array(self, tensor: Tensor) -> np.ndarray:
        return np.array(tensor.cpu().numpy())

    def wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def how(self, operation: str) -> str:
        return f"dist.{operation}{'_single' if operation in _SINGLE else ''}"

    def prepare(self, operation: str, tensor: Any) -> Callable[[], Any]:
        return getattr(self, f"_{operation}")(tensor)

    def _broadcast(self, x: Tensor) -> Callable[[], Any]:
        return lambda: (dist.broadcast(x, ROOT), x)[1]

    def _reduce(self, x: Tensor) -> Callable[[], Any]:
        return lambda: (dist.reduce(x, ROOT), x if self.rank == ROOT else None)[1]

    def _all_reduce(self, x: Tensor) -> Callable[[], Any]:
        return lambda: (dist.all_reduce(x), x)[1]

    def _scatter(self, x: Tensor) -> Callable[[], Any]:
        own = torch.empty_like(x[: len(x) // self.ranks])
        parts = list(x.chunk(self.ranks)) if self.rank == ROOT else None
        return lambda: (dist.scatter(own, parts, ROOT), own)[1]

    def _gather(self, x: Tensor) -> Callable[[], Any]:
        if self.rank != ROOT:
            return lambda: dist.gather(x, None, ROOT)
        whole = x.new_empty(len(x) * self.ranks)
        parts = list(whole.chunk(self.ranks))
        return lambda: (dist.gather(x, parts, ROOT), whole)[1]

    def _all_gather(self, x: Tensor) -> Callable[[], Any]:
        whole = x.new_empty(len(x) * self.ranks)
        return lambda: (all_gather(whole, x), whole)[1]

    def _reduce_scatter(self, x: Tensor) -> Callable[[], Any]:
        own = x.new_empty(len(x) // self.ranks)
        return lambda: (reduce_scatter(own, x), own)[1]

    def _barrier(self, x: None) -> Callable[[], Any]:
        del x
        if self.device == "cpu":
            return dist.barrier
        return lambda: dist.barrier(device_ids=[torch.cuda.current_device()])


def measure(plan: Plan, folder: Path) -> None:
    """Run a plan as one of its ranks, in the process group that the environment describes."""
    placement = Placement.parse(
        {
            "framework": "torch",
            "strategy": "manual",
            "replicas": plan.ranks,
            "device": plan.device,
            "timeout_seconds": plan.timeout_seconds,
        }
    )
    runtime.configure(placement)
    strategy = open_strategy(placement)
    try:
        conduct(plan, Group(strategy.rank, plan, strategy.device), folder)
        dist.barrier()
    finally:
        dist.destroy_process_group()
