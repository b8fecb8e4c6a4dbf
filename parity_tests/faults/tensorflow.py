"""Faults of the TensorFlow side by name: `NAME`, or several at once as `ONE+OTHER`.

Each is a context manager around one run in the worker.
"""

from __future__ import annotations

from functools import partial
from typing import Any

# They register themselves.
from parity_tests.faults import (
    tensorflow_attention,
    tensorflow_data,
    tensorflow_layers,
    tensorflow_optimizer,
    tensorflow_reduction,
)
from parity_tests.faults.tensorflow_base import in_this_process, is_known, planted

__all__ = [
    "in_this_process",
    "tensorflow_attention",
    "tensorflow_data",
    "tensorflow_layers",
    "tensorflow_optimizer",
    "tensorflow_reduction",
]


def __getattr__(names: str) -> Any:
    if is_known(names):
        return partial(planted, names)
    raise AttributeError(f"no fault {names!r}")
