"""Canonical state: named NumPy arrays in one layout, whatever the framework or the placement.

Names: `parameters/<layer path>/<tensor>`, `buffers/...`, `slots/<slot>/...`, and `step`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from common import rng
from common.errors import RecordError
from common.initializers import initial_value
from common.reference import initial_slots
from common.reference.optimizers import InitialSlot
from common.spec import ParameterSpec, TrainSpec, walk
from common.spec.optimizers import OptimizerBase

State = dict[str, NDArray[np.generic]]


def canonical_name(path: str, parameter: ParameterSpec) -> str:
    """The full canonical name of a layer's tensor."""
    return f"{'parameters' if parameter.trainable else 'buffers'}/{path}/{parameter.name}"


def parameter_specs(spec: TrainSpec) -> dict[str, ParameterSpec]:
    """Every tensor of the model by canonical name, in execution order."""
    return {canonical_name(n.path, p): p for n in walk(spec.model.tree()) for p in n.parameters}


def slots_of(optimizer: OptimizerBase, specs: dict[str, ParameterSpec]) -> dict[str, dict[str, InitialSlot]]:
    """The slots of each parameter: canonical name -> slot -> shape and initial value."""
    return {
        name: initial_slots(optimizer, name.removeprefix("parameters/"), parameter.shape)
        for name, parameter in specs.items()
        if parameter.trainable
    }


def slot_name(slot: str, name: str) -> str:
    """The canonical name of a parameter's slot."""
    return f"slots/{slot}/{name.removeprefix('parameters/')}"


def initial_state(spec: TrainSpec, noise_member: int | None = None) -> State:
    """The state before the first step: the same bits for both frameworks.

    Values are drawn in float64, keyed by (seed, tensor name), then rounded to the run's type.

    Args:
        spec: resolved or not.
        noise_member: of the runs that measure the noise of a mixed precision, the number of one: its
            parameters are off by a small part of a low unit in the last place (see `parity/budget.py`).
    """
    state: State = {}
    spec = spec.resolved()
    specs = parameter_specs(spec)
    for name, parameter in specs.items():
        value = initial_value(parameter, rng.derive_key(spec.seed, "init", name))
        if noise_member is not None and parameter.trainable and spec.nudge:
            key = rng.derive_key(spec.seed, "noise member", noise_member, name)
            value = value * (1 + spec.nudge * (2 * rng.uniform(key, value.shape) - 1))
        state[name] = value.astype(spec.master_dtype)
    for name, slots in slots_of(spec.optimizer, specs).items():
        for slot, initial in slots.items():
            state[slot_name(slot, name)] = np.full(initial.shape, initial.value, spec.master_dtype)
    state["step"] = np.array(0, np.int64)
    return state


def null_directions(spec: TrainSpec) -> dict[str, str]:
    """The ledger of tensors whose gradient is only rounding noise, and of what follows them: name -> reason.

    An optimizer that normalises gradients turns that noise into steps, so two exact runs differ
    there and nowhere else; their loss does not see it. Names leave out `parameters/` and `buffers/`.
    """
    return {
        name.partition("/")[2]: p.null_direction
        for name, p in parameter_specs(spec).items()
        if p.null_direction is not None
    }


def digest_of(arrays: Iterable[NDArray[np.generic]]) -> str:
    """16 hexadecimal digits that change with any bit, shape or type of some arrays in order."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def save_state(path: Path, state: State) -> None:
    """Write safetensors so that the file is either absent or whole."""
    temporary = path.with_suffix(".partial")
    save_file({name: np.array(value, order="C") for name, value in state.items()}, temporary)
    os.replace(temporary, path)


def load_state(path: Path) -> State:
    """Read safetensors; raises RecordError for a missing, truncated or foreign file."""
    try:
        state: State = load_file(path)
    except FileNotFoundError:
        raise RecordError(f"{path}: missing; the run may not have finished") from None
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise RecordError(f"{path}: not a whole safetensors file: {error}") from None
    return state
