"""Engines: other people's trainers, which wrap the model, run its backward pass, or own the loop.

The spec, the batch plan, the keyed randomness, the loss as (sum, count) and the update rule stay ours.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from parity.common.base.errors import MissingPackageError, how_to_install
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.capabilities import packages_of, refusal
from parity.common.spec.deepspeed import deepspeed_config
from parity.torch_impl import runtime
from parity.torch_impl.private_names import has_compiler


def check(spec: TrainSpec, placement: Placement) -> None:
    """Raise, before anything is started, where a package or a compiler is missing, or DeepSpeed's file is wrong."""
    for name, package in packages_of(placement).items():
        if not _is_there(package):
            raise MissingPackageError(
                f"{name!r} needs {package}, which is not installed; {how_to_install(package)}"
            )
    if placement.compile and not runtime.uses_gpu(placement):
        why = refusal(placement, {"no_compiler": not has_compiler()})
        if why is not None:
            raise MissingPackageError(why)
    if placement.strategy == "deepspeed":
        deepspeed_config(spec, placement)


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def engine_of(placement: Placement) -> Any:
    """The module of the placement's engine."""
    return importlib.import_module(f"parity.torch_impl.engines.{placement.engine}")
