"""Optimizer specs. Formulas: `common/reference/optimizers`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from parity.common.spec.optimizers.adam import Adam, Adamax, AdamBase, AdamW, Moments, Nadam
from parity.common.spec.optimizers.adaptive import Adadelta, Adagrad, RMSprop
from parity.common.spec.optimizers.base import OptimizerBase, WeightAverage
from parity.common.spec.optimizers.descent import SGD, Lion
from parity.common.spec.optimizers.matrix import Adafactor, Lamb, Muon

OptimizerSpec = Annotated[
    SGD | Adam | AdamW | RMSprop | Adagrad | Adadelta | Adamax | Nadam | Lion | Adafactor | Muon | Lamb,
    Field(discriminator="kind"),
]

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamBase",
    "AdamW",
    "Adamax",
    "Lamb",
    "Lion",
    "Moments",
    "Muon",
    "Nadam",
    "OptimizerBase",
    "OptimizerSpec",
    "RMSprop",
    "WeightAverage",
    "parse_optimizer",
]


def parse_optimizer(data: dict[str, object]) -> OptimizerBase:
    """An optimizer from plain data, by its `kind`."""
    optimizer: OptimizerBase = TypeAdapter(OptimizerSpec).validate_python(data)
    return optimizer
