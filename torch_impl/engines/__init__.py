"""Engines: other people's trainers, which wrap the model, run its backward pass, or own the loop.

The spec, the batch plan, the keyed randomness, the loss as (sum, count) and the update rule stay ours.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import Any

from parity.common.base.errors import MissingPackageError, RunError, SpecError, how_to_install
from parity.common.execution.checks import check_elementwise
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.deepspeed import check_deepspeed
from parity.torch_impl import runtime

# Engines whose own loop trains; the others are called from ours.
_LOOPS = {"lightning"}
# engine, or strategy that needs one -> package, which is also the name of the extra that installs it.
_PACKAGES = {
    "lightning": "lightning",
    "fabric": "lightning",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
}


def check(spec: TrainSpec, placement: Placement) -> None:
    """Raise, before anything is started, where an engine cannot run a spec on a placement."""
    for name, package in _needed(placement).items():
        if not _is_there(package):
            raise MissingPackageError(
                f"{name!r} needs {package}, which is not installed; {how_to_install(package)}"
            )
    if placement.strategy == "deepspeed":
        check_deepspeed(spec, placement)
        check_elementwise(spec.optimizer)
    if placement.engine == "lightning":
        _check_lightning(placement)


def _check_lightning(placement: Placement) -> None:
    if placement.strategy == "fsdp1" and not runtime.uses_gpu(placement):
        raise RunError("Lightning's FSDPStrategy demands a GPU; take engine own, or strategy fsdp2")
    if placement.launcher == "mp_spawn" and placement.strategy != "ddp":
        raise SpecError("Lightning spawns ranks for ddp only; take launcher local")


def _needed(placement: Placement) -> dict[str, str]:
    """The packages behind a placement, by what of it needs them."""
    named = {
        f"{part}={getattr(placement, part)}": getattr(placement, part) for part in ("engine", "strategy")
    }
    return {shown: _PACKAGES[name] for shown, name in named.items() if name in _PACKAGES}


def versions(placement: Placement) -> dict[str, str]:
    """The versions of the packages behind a placement, for the record."""
    return {package: importlib.metadata.version(package) for package in _needed(placement).values()}


def starts_ranks(placement: Placement) -> bool:
    """Whether the placement's engine starts the ranks itself, as Lightning's ddp_spawn does."""
    return placement.engine == "lightning" and placement.launcher == "mp_spawn"


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
