"""Faults of the PyTorch side by name, each a context manager around one run in the worker.

`parity_tests.faults.torch:ONE` is one, `parity_tests.faults.torch:ONE+OTHER` both at once.
"""

from __future__ import annotations

from parity_tests.faults import (
    torch_data,
    torch_engines,
    torch_layers,
    torch_optimizers,
    torch_precision,
    torch_scale,
    torch_synchronisation,
)
from parity_tests.faults.torch_ground import Manager, in_this_process, in_worker, known

__all__ = [
    "in_this_process",
    "torch_data",
    "torch_engines",
    "torch_layers",
    "torch_optimizers",
    "torch_precision",
    "torch_scale",
    "torch_synchronisation",
]


def __getattr__(names: str) -> Manager:
    if not known(names):
        raise AttributeError(f"no fault {names}")
    return in_worker(names)
