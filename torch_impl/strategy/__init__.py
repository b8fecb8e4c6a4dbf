"""Parallelism, all of it: replicas, where they run, how they share a model, and sums over them."""

from __future__ import annotations

from common.spec import Placement
from torch_impl.strategy.base import Strategy
from torch_impl.strategy.data_parallel import DataParallel
from torch_impl.strategy.deepspeed import DeepSpeed
from torch_impl.strategy.replicated import DDP, Manual, ZeroRedundancy
from torch_impl.strategy.sharded import FSDP1, FSDP2
from torch_impl.strategy.tensor_parallel import TensorParallel

__all__ = ["STRATEGIES", "Strategy", "open_strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    "single": Strategy,
    "manual": Manual,
    "ddp": DDP,
    "zero_redundancy": ZeroRedundancy,
    "fsdp1": FSDP1,
    "fsdp2": FSDP2,
    "deepspeed": DeepSpeed,
    "tensor_parallel": TensorParallel,
    "data_parallel": DataParallel,
}


def open_strategy(placement: Placement) -> Strategy:
    """The strategy of a placement; joins the process group that the launcher's environment describes."""
    from torch_impl import engines  # which builds on these strategies

    return (engines.strategy_of(placement) or STRATEGIES[placement.strategy])(placement)
