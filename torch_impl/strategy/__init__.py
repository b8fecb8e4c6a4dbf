"""Parallelism, all of it: replicas, where they run, how they share a model, and sums over them."""

from __future__ import annotations

from parity.common.spec import Placement
from parity.torch_impl.strategy.base import Strategy
from parity.torch_impl.strategy.deepspeed import DeepSpeed
from parity.torch_impl.strategy.replicated import DDP, DataParallel, Manual
from parity.torch_impl.strategy.sharded import FSDP1, FSDP2
from parity.torch_impl.strategy.tensor_parallel import TensorParallel

__all__ = ["STRATEGIES", "Strategy", "open_strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    "single": Strategy,
    "manual": Manual,
    "ddp": DDP,
    # Its slots alone are divided over the ranks, by its optimizer.
    "zero_redundancy": DDP,
    "fsdp1": FSDP1,
    "fsdp2": FSDP2,
    "deepspeed": DeepSpeed,
    "tensor_parallel": TensorParallel,
    "data_parallel": DataParallel,
}


def open_strategy(placement: Placement) -> Strategy:
    """The strategy of a placement; joins the process group that the launcher's environment describes."""
    from parity.torch_impl import engines  # which builds on these strategies

    if placement.engine != "own" and not placement.engine_owns_loop:
        return engines.engine_of(placement).STRATEGIES[placement.strategy](placement)
    return STRATEGIES[placement.strategy](placement)
