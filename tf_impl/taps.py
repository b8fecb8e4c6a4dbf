"""What a run shows of itself: tensors by canonical name, digests of them, and the memory they take."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np

from common.state import State, digest_of
from tf_impl.model import Model
from tf_impl.optimizers import Optimizer
from tf_impl.strategy import Strategy


def reduced_gradients(model: Model, gradients: list[Any]) -> State:
    """Copies of a step's global gradients, given in the order of `model.parameters`."""
    return {name: np.array(gradient) for name, gradient in zip(model.parameters, gradients, strict=True)}


def parameter_digests(model: Model, strategy: Strategy) -> list[str]:
    """A digest of all parameters, bit for bit, of each replica that this process speaks for."""
    replicas = zip(*(strategy.unpack(variable) for variable in model.parameters.values()), strict=True)
    return [digest_of([np.asarray(copy) for copy in copies]) for copies in replicas]


def memory(model: Model, optimizer: Optimizer) -> dict[str, int]:
    """Bytes that one replica of this process holds between two steps.

    parameters, slots: of the variables of each kind. peak_resident: the most memory that the process,
    with all its replicas, has had since it began.
    """
    slots = [variable for variables in optimizer.slots.values() for variable in variables.values()]
    return {
        "parameters": _bytes(list(model.parameters.values())),
        "slots": _bytes(slots),
        "peak_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _bytes(variables: list[Any]) -> int:
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
