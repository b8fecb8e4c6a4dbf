"""Canonical state: named NumPy arrays in one layout, whatever the framework or the placement.

Names: `parameters/<layer path>/<tensor>`, `buffers/...`, `slots/<slot>/...`, and `step`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from parity.common.base import rng
from parity.common.base.errors import RecordError, SpecError, check_printable
from parity.common.base.files import replacing, unique_keys
from parity.common.data.files import hash_of, located
from parity.common.reference import initial_slots
from parity.common.reference.optimizers import InitialSlot
from parity.common.spec import ParameterSpec, TrainSpec, walk
from parity.common.spec.initializers import initial_value
from parity.common.spec.layers import Imported
from parity.common.spec.optimizers import OptimizerBase

State = dict[str, NDArray[np.generic]]
Tensor = TypeVar("Tensor")


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

    Values are drawn in float64, keyed by (seed, tensor name), or are those that an imported model comes with;
    then they are rounded to the run's type.

    Args:
        spec: resolved or not.
        noise_member: of the runs that measure the noise of a mixed precision, or of float64, the number of one: its
            parameters are off by a small part of a low unit in the last place, or by one of float64 (see `parity/budget.py`).

    Raises:
        SpecError: the file that the values of an imported model come from is missing, or another.
        RecordError: it is damaged, or holds other tensors than the model has.
    """
    state: State = {}
    spec = spec.resolved()
    specs = parameter_specs(spec)
    given = {} if spec.model.imported is None else _given(spec.model.imported, specs)
    for name, parameter in specs.items():
        value = given.get(name)
        if value is None:
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


def _given(layer: Imported, specs: dict[str, ParameterSpec]) -> dict[str, NDArray[np.float64]]:
    """The values that an imported model's weights file holds of its tensors, in float64."""
    path = located(layer.weights)
    if not path.is_file():
        what = "is no file" if path.exists() else "is missing"
        raise SpecError(f"model.weights: {path} {what}; relative paths are looked up below $PARITY_DATA")
    if (found := hash_of(path)) != layer.sha256:
        raise SpecError(f"model.weights: {path} has the SHA-256 {found}, the spec says {layer.sha256}")
    stored_arrays = load_state(path)
    names = {parameter.name: name for name, parameter in specs.items()}
    for name in sorted(names.keys() ^ stored_arrays.keys()):
        which = f"lacks {name!r}" if name in names else f"holds a foreign tensor {name[:80]!r}"
        raise RecordError(f"{path}: {which}; it should hold the Keras tensors that model.mapping names")
    for name, value in stored_arrays.items():
        shape = specs[names[name]].shape
        if value.shape != shape or value.dtype.kind != "f":
            raise RecordError(
                f"{path}: {name} is {value.dtype} of shape {value.shape}, should be floats of shape {shape}"
            )
    return {names[name]: value.astype(np.float64) for name, value in stored_arrays.items()}


def tensor_of(name: str) -> str:
    """'slots/first_moment/a/b' and 'parameters/a/b' are both the tensor 'a/b'."""
    head, _, rest = name.partition("/")
    return rest.partition("/")[2] if head == "slots" else rest


def without_ties(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return each object once, by the first of its names."""
    first = {id(tensor): name for name, tensor in reversed(list(tensors.items()))}
    return {name: tensor for name, tensor in tensors.items() if first[id(tensor)] == name}


def parameter_fingerprint(arrays: Iterable[NDArray[np.generic]]) -> str:
    """16 hexadecimal digits that change with any bit, shape or type of some arrays in order."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def save_state(path: Path, state: State) -> None:
    """Write safetensors so that the file is either absent or whole."""
    with replacing(path) as temporary:
        save_file({name: np.array(value, order="C") for name, value in state.items()}, temporary)


def load_state(path: Path, mapped: bool = False) -> State:
    """Read safetensors; raises RecordError for a missing, truncated or foreign file.

    mapped: leave the tensors in the file, read-only, and its pages to the system: for what is too much to
    be held at once.
    """
    try:
        if path.exists() and not path.is_file():
            raise RecordError(f"{path}: not a file, but a folder, a device or a pipe")
        state: State = _mapped(path) if mapped else load_file(path)
    except FileNotFoundError:
        raise RecordError(f"{path}: missing; the run may not have finished") from None
    except AttributeError as error:  # of NumPy, which has no eight-bit floats
        raise RecordError(f"{path}: numbers of type {error.name} are not read") from None
    except (
        SafetensorError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        MemoryError,
    ) as error:
        # It names what it found there, which may be anything.
        why = ascii(str(error))[1:-1]
        raise RecordError(f"{path}: not a whole safetensors file: {why[:200]}") from None
    check_printable(state, path, RecordError)
    return state


def _mapped(path: Path) -> State:
    with safe_open(path, framework="np"):
        pass  # it says whether the file is whole, and all offsets inside
    buffer = np.memmap(path, np.uint8, mode="r")
    start = 8 + int(buffer[:8].view("<u8")[0])
    header = json.loads(buffer[8:start].tobytes(), object_pairs_hook=unique_keys)
    header.pop("__metadata__", None)
    return {
        name: np.ndarray(entry["shape"], _type_of(entry["dtype"]), buffer, start + entry["data_offsets"][0])
        for name, entry in header.items()
    }


def _type_of(name: str) -> np.dtype[Any]:
    """Of safetensors' name for a type: F64, I32, U8, BOOL."""
    return np.dtype(bool) if name == "BOOL" else np.dtype(f"{name[0].lower()}{int(name[1:]) // 8}")
