"""Engines: other people's trainers, which wrap the model, run its backward pass, or own the loop.

The spec, the batch plan, the keyed randomness, the loss as (sum, count) and the update rule stay ours.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from parity.common.base.errors import MissingPackageError, RunError, SpecError, how_to_install
from parity.common.execution.checks import check_elementwise
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.deepspeed import check_deepspeed
from parity.torch_impl import runtime
from parity.torch_impl.engines.packages import needed

# Engines whose own loop trains; the others are called from ours.
_LOOPS = {"lightning"}


def check(spec: TrainSpec, placement: Placement) -> None:
    """Raise, before anything is started, where an engine cannot run a spec on a placement."""
    for name, package in needed(placement).items():
        if not _is_there(package):
            raise MissingPackageError(
                f"{name!r} needs {package}, which is not installed; {how_to_install(package)}"
            )
    if placement.strategy == "deepspeed":
        check_deepspeed(spec, placement)
        check_elementwise(spec.optimizer)
    if placement.engine == "lightning":
        if placement.strategy == "fsdp1" and not runtime.uses_gpu(placement):
            raise RunError("Lightning's FSDPStrategy demands a GPU; take engine own, or strategy fsdp2")
        if placement.launcher == "mp_spawn" and placement.strategy != "ddp":
            raise SpecError("Lightning spawns ranks for ddp only; take launcher local")


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def owns_loop(placement: Placement) -> bool:
    """Whether the placement's engine runs the training loop itself."""
    return placement.engine in _LOOPS


def engine_of(placement: Placement) -> Any:
    """The module of the placement's engine."""
    return importlib.import_module(f"parity.torch_impl.engines.{placement.engine}")
