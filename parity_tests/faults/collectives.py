"""Collectives that go wrong in one number of one rank, or let a rank leave a barrier early."""

from __future__ import annotations

import importlib
from pathlib import Path

from parity.common.planning.collectives.bench import Plan


def _measure(package: str, fault: str, plan: Plan, folder: Path) -> None:
    """`measure` of a twin with an operation of its Group replaced; `fault` is OPERATION."""
    module = importlib.import_module(f"{package}.collectives")
    prepare = module.Group.prepare

    def corrupted(group, operation, tensor):
        run = prepare(group, operation, tensor)
        if operation != fault or group.rank != plan.ranks - 1:
            return run
        if operation == "barrier":
            return lambda: None

        def wrong():
            array = group.array(run())
            array[0] += 1
            return group.tensor(array)

        return wrong

    module.Group.prepare = corrupted
    module.measure(plan, folder)


def torch_all_reduce(plan: Plan, folder: Path) -> None:
    """The last rank's sum is wrong in one number."""
    _measure("parity.torch_impl", "all_reduce", plan, folder)


def torch_scatter(plan: Plan, folder: Path) -> None:
    """The last rank's part is wrong in one number."""
    _measure("parity.torch_impl", "scatter", plan, folder)


def tensorflow_all_gather(plan: Plan, folder: Path) -> None:
    """The last rank's whole is wrong in one number."""
    _measure("parity.tf_impl", "all_gather", plan, folder)
