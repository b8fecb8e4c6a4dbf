"""Canonical state <-> live model and optimizer. Bit-lossless both ways."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from parity.common.state.canonical import State, slot_name
from parity.tf_impl.model import Model
from parity.tf_impl.optimizers import Optimizer
from parity.tf_impl.strategy import Strategy


def load(state: State, model: Model, optimizer: Optimizer) -> None:
    """Set every variable from a canonical state that holds exactly the model's tensors."""
    for name, variable in _variables(model, optimizer).items():
        variable.assign(state[name])


def load_own(own: Callable[[int], State], model: Model, strategy: Strategy) -> None:
    """Give each local replica the buffers that are its own, where it has any."""
    for place, replica in enumerate(strategy.local_replicas):
        for name, value in own(replica).items():
            strategy.unpack(model.tensors[name])[place].assign(value)


def export(model: Model, optimizer: Optimizer, step: int) -> State:
    """Copies of every variable by canonical name."""
    # .numpy() may share memory with the variable, which training goes on changing.
    state: State = {name: np.array(v.numpy()) for name, v in _variables(model, optimizer).items()}
    state["step"] = np.array(step, np.int64)
    return state


def export_replicas(model: Model, optimizer: Optimizer, strategy: Strategy) -> list[State]:
    """What each replica that this process speaks for holds of every variable, even where they should agree."""
    return _of_replicas(_variables(model, optimizer), strategy)


def export_buffers(model: Model, strategy: Strategy) -> list[State]:
    """Copies of the buffers of each replica that this process speaks for."""
    return _of_replicas({n: v for n, v in model.tensors.items() if n.startswith("buffers/")}, strategy)


def _of_replicas(variables: dict[str, tf.Variable], strategy: Strategy) -> list[State]:
    held = {name: strategy.unpack(variable) for name, variable in variables.items()}
    return [
        {name: _read_component(copies[place]) for name, copies in held.items()}
        for place in range(len(strategy.recorded_replicas))
    ]


def _variables(model: Model, optimizer: Optimizer) -> dict[str, tf.Variable]:
    result = dict(model.tensors)
    for slot, variables in optimizer.slots.items():
        for name, variable in variables.items():
            result[slot_name(slot, name)] = variable
    return result


def _read_component(variable: tf.Variable) -> np.ndarray:
    # Of one device; takes a quarter of the time of .numpy(), and a step that is looked into reads hundreds.
    return np.array(tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype))
