"""The learning rates of a user's optimizer, step by step, and one of them held."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from parity.common.base.errors import ExternalModelError
from parity.common.spec.external.target import Target
from parity.torch_impl.external.load import with_scheduler


def rates(target: Target, model: nn.Module, steps: int) -> list[list[float]] | None:
    """Return the learning rates of each of the first steps, one of each parameter group; None where no scheduler sets any.

    Raises:
        ExternalModelError: the target keeps its scheduler to itself, or that sets more than rates.
    """
    optimizer, scheduler = with_scheduler(target, model)
    groups = optimizer.param_groups
    if scheduler is None:
        if any("initial_lr" in group for group in groups):
            raise ExternalModelError(
                f"{target}: a scheduler sets the learning rates of this optimizer, and nothing tells which: have it give both,"
                " optimizer and scheduler"
            )
        return None
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ExternalModelError(
            f"{target}: ReduceLROnPlateau goes by a loss, so that its rates are not known before; give the optimizer without"
        )
    others, found = _others(groups), []
    for step in range(steps):
        found.append([float(group["lr"]) for group in groups])
        try:
            with warnings.catch_warnings():
                # It warns where nothing was updated before: there are no gradients by which to update here.
                warnings.simplefilter("ignore", UserWarning)
                scheduler.step()
        except ValueError as error:
            raise ExternalModelError(
                f"{target}: the scheduler has no rate for step {step + 1}: {error}"
            ) from None
        changed = [name for name, value in _others(groups).items() if value != others[name]]
        if changed:
            raise ExternalModelError(
                f"{target}: the scheduler changes {changed[0]} too, which is not compared; have it leave that (cycle_momentum=False)"
            )
    return found


def hold(optimizer: torch.optim.Optimizer, rates: Sequence[float]) -> None:
    """Have an optimizer keep learning rates, of each parameter group or one of all, whatever a scheduler has set."""
    groups = optimizer.param_groups
    for group, rate in zip(groups, rates if len(rates) > 1 else [*rates] * len(groups), strict=True):
        group["lr"] = rate


def _others(groups: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """By name the settings of all groups, but for their parameters and rates."""
    return {
        name: [group.get(name) for group in groups]
        for name in groups[0]
        if name not in ("params", "lr", "initial_lr", "min_lr", "max_lr")
    }
