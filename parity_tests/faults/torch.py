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
from parity_tests.faults.torch_ground import Manager, faulty_rank, in_worker, known

__all__ = [
    "faulty_rank",
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
