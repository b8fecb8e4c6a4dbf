"""PyTorch checkpoints for `parity export`.

See `common/external/checkpoints.py` for what slots mean.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from parity.common.base.errors import ExternalModelError
from parity.common.base.files import replacing
from parity.common.external import checkpoints as both
from parity.common.external.process.layouts import to_torch_input
from parity.common.spec.external.mapping import counts_batches
from parity.common.spec.external.target import Target
from parity.common.state.canonical import without_ties
from parity.torch_impl.external import names, passes
from parity.torch_impl.external.calling import array_of
from parity.torch_impl.external.load import build, build_optimizer, prepare

# What a file of several parts calls them; the first is what is written.
_MODEL = ("model", "model_state_dict", "state_dict")
_OPTIMIZER = ("optimizer", "optimizer_state_dict")
_STEP = ("step", "global_step")

_MOMENTS = {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}
_ADAM = ("adam", _MOMENTS | {"largest_second_moment": "max_exp_avg_sq"})
# Class -> kind, and by canonical slot what the state calls it; see `_present` for those that settings switch.
SLOTS: dict[type[torch.optim.Optimizer], tuple[str, dict[str, str]]] = {
    torch.optim.SGD: ("sgd", {"momentum_velocity": "momentum_buffer"}),
    torch.optim.RMSprop: (
        "rmsprop",
        {"second_moment": "square_avg", "first_moment": "grad_avg", "momentum_velocity": "momentum_buffer"},
    ),
    torch.optim.Adagrad: ("adagrad", {"accumulator": "sum"}),
    torch.optim.Adadelta: ("adadelta", {"second_moment": "square_avg", "squared_change": "acc_delta"}),
    torch.optim.Adamax: ("adamax", {"first_moment": "exp_avg", "infinity_norm": "exp_inf"}),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
}
# Slots that there are only with a setting: canonical slot, kind -> setting.
_SWITCHED = {
    ("momentum_velocity", "sgd"): "momentum",
    ("momentum_velocity", "rmsprop"): "momentum",
    ("first_moment", "rmsprop"): "centered",
    ("largest_second_moment", "adam"): "amsgrad",
}


def read(
    path: Path,
    model: str | None,
    optimizer: str | None,
    weights_only: bool,
    inputs: both.State | None = None,
) -> both.CheckpointContents:
    """What a .pt, .pth or .safetensors file holds.

    Args:
        path: a state_dict, or a dict of one with an optimizer's and the step.
        model, optimizer: targets; needed for the optimizer, whose state has numbers for names.
        weights_only: leave out the optimizer.
        inputs: (batch, ...) by name, of a model that has no weights before its first call.

    Raises:
        ExternalModelError: it is damaged, foreign, holds code, or an optimizer that cannot be carried.
    """
    weights, state, step = _parts(path, _loaded(path))
    tensors = {name: _array(path, name, value) for name, value in weights.items()}
    if weights_only:
        return both.CheckpointContents(tensors)
    if state is None:
        return both.CheckpointContents(tensors, step=step)
    if optimizer is None or model is None:
        raise ExternalModelError(
            f"{path}: holds the state of an optimizer: name yours with --torch-optimizer, and the model with"
            " --torch, or carry the weights alone with --weights-only"
        )
    built = _built(model, tensors, inputs)
    live = build_optimizer(Target.of(optimizer), built)
    kind, table = both.slots_of_class(live, SLOTS)
    numbered = _numbered(path, state, live, _names(built))
    slots, steps = _slots(path, state, numbered, table)
    if len(steps) > 1:
        raise ExternalModelError(
            f"{path}: its parameters have been updated {min(steps)} to {max(steps)} times; Keras has one count for"
            " all; carry the weights with --weights-only"
        )
    rates = {float(group["lr"]) for group in state["param_groups"]}
    if any(group.get("dampening") for group in state["param_groups"]):
        raise ExternalModelError(
            f"{path}: the optimizer has dampening, which Keras has not; use --weights-only"
        )
    if len(rates) > 1:
        raise ExternalModelError(
            f"{path}: the optimizer has groups with learning rates {', '.join(map(repr, sorted(rates)))}; Keras has"
            " one rate for all; carry the weights with --weights-only"
        )
    rate = rates.pop() if rates else None
    if rate is not None:
        _scale(slots, kind, lambda name: rate)
    # Slots that are not there yet, of an optimizer that has done no update, are left to Keras.
    if slots:
        both.check_slots(slots, _present(live.param_groups[0], table, kind), type(live).__name__)
    return both.CheckpointContents(tensors, slots, kind, steps.pop() if steps else step, rate)


def write(
    path: Path,
    model: str | None,
    optimizer: str | None,
    contents: both.CheckpointContents,
    inputs: both.State | None = None,
) -> list[str]:
    """Write a .pt, .pth or .safetensors file: a state_dict, or where slots are held a dict of it and the others.

    Args:
        path: is written whole or not at all.
        model, optimizer: targets; needed for the optimizer. With the model, the file also has what the mapping
            leaves out (ignored buffers), as the model is built with it, and is known to fit.
        contents: by torch's names.
        inputs: as of `read`.

    Raises:
        ExternalModelError: it does not fit the model, or the optimizer is of another kind.
    """
    notes: list[str] = []
    tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in contents.tensors.items()}
    content: dict[str, Any] = tensors
    if model is not None:
        built = _built(model, contents.tensors, inputs)
        content = tensors = _completed(built, tensors, contents.step, notes)
    if contents.kind is not None:
        if path.suffix == ".safetensors":
            raise ExternalModelError(
                f"{path}: a .safetensors file holds tensors alone; write a .pt, or give --weights-only"
            )
        if optimizer is None or model is None:
            raise ExternalModelError(
                "the checkpoint holds the state of an optimizer: name torch's with --torch-optimizer, and the model"
                " with --torch, or carry the weights alone with --weights-only"
            )
        live = build_optimizer(Target.of(optimizer), built)
        state = _optimizer_state(live, built, contents, optimizer, notes)
        content = {_MODEL[0]: tensors, _OPTIMIZER[0]: state, _STEP[0]: contents.step or 0}
    with replacing(path) as temporary:
        if path.suffix == ".safetensors":
            apart = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
            save_file(apart, temporary, metadata={"format": "pt"})
        else:
            torch.save(content, temporary)
    return notes


def _loaded(path: Path) -> Any:
    with open(path, "rb"):
        pass  # an error of the file system is one; whatever torch says of the content is another
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise ExternalModelError(
            f"{path}: not a whole safetensors file: {ascii(str(error))[1:200]}"
        ) from None
    except Exception:
        raise ExternalModelError(
            f"{path}: not a whole file of torch.save, or not one of tensors alone (torch.load with weights_only=True"
            " refuses it): save the state_dict of the model, not the model"
        ) from None


def _parts(path: Path, content: Any) -> tuple[dict[str, Any], dict[str, Any] | None, int | None]:
    """The state_dicts of model and optimizer, and the step."""
    if not isinstance(content, dict):
        raise ExternalModelError(
            f"{path}: holds a {type(content).__name__}; a checkpoint is a state_dict or a dict of some"
        )
    weights = next((content[key] for key in _MODEL if isinstance(content.get(key), dict)), None)
    if weights is None:
        return _tensors(path, content), None, None
    optimizer = next((content[key] for key in _OPTIMIZER if key in content), None)
    step = next((content[key] for key in _STEP if isinstance(content.get(key), int)), None)
    if optimizer is not None and not (
        isinstance(optimizer, dict)
        and isinstance(optimizer.get("state"), dict)
        and isinstance(optimizer.get("param_groups"), list)
        and all(isinstance(group, dict) and "params" in group for group in optimizer["param_groups"])
        and all(isinstance(slots, dict) for slots in optimizer["state"].values())
    ):
        raise ExternalModelError(f"{path}: what it calls the optimizer is no optimizer's state_dict")
    return _tensors(path, weights), optimizer, step


def _tensors(path: Path, state: dict[Any, Any]) -> dict[str, torch.Tensor]:
    found = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and isinstance(name, str):
            found[name] = value
        elif not str(name).endswith("_extra_state"):
            raise ExternalModelError(
                f"{path}: {str(name)[:80]!r} is a {type(value).__name__}; a state_dict holds tensors by name"
            )
    if not found:
        raise ExternalModelError(f"{path}: holds no tensors")
    return found


def _array(path: Path, name: str, tensor: torch.Tensor) -> np.ndarray:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
        raise ExternalModelError(
            f"{path}: {name[:80]!r} is no plain tensor; quantised, sparse and complex ones stay"
        )
    return array_of(tensor)


def _built(model: str, tensors: both.State, inputs: both.State | None) -> torch.nn.Module:
    precision = both.precision_of({array.dtype for array in tensors.values()})
    prepare(precision)
    live = build(Target.of(model), precision, 0)
    if inputs is not None:
        first = {name: to_torch_input(array) if array.ndim > 3 else array for name, array in inputs.items()}
        passes.finish(live, first)
    if any(torch.nn.parameter.is_lazy(tensor) for tensor in live.state_dict().values()):
        raise ExternalModelError(
            f"{model} gives a model that has no weights before it is called; give samples to call it with: --data"
        )
    return live


def _names(model: torch.nn.Module) -> dict[int, str]:
    """By id of the tensor, the first of its names."""
    return {id(tensor): name for name, tensor in without_ties(names.tensors(model)).items()}


def _numbered(
    path: Path, state: dict[str, Any], live: torch.optim.Optimizer, named: dict[int, str]
) -> dict[Any, str]:
    """The number of a parameter in the file -> its name."""
    groups = state["param_groups"]
    ours = [len(group["params"]) for group in live.param_groups]
    theirs = [len(group["params"]) for group in groups]
    if ours != theirs:
        raise ExternalModelError(
            f"{path}: its optimizer has groups of {theirs} parameters, yours of {ours}; give the --torch-optimizer"
            " that it was saved from"
        )
    return {
        number: named[id(parameter)]
        for group, mine in zip(groups, live.param_groups, strict=True)
        for number, parameter in zip(group["params"], mine["params"], strict=True)
    }


def _slots(
    path: Path, state: dict[str, Any], numbered: dict[Any, str], table: dict[str, str]
) -> tuple[dict[str, both.State], set[int]]:
    """By canonical slot and name, in torch's meaning; and how often parameters were updated."""
    canonical = {theirs: ours for ours, theirs in table.items()}
    slots: dict[str, both.State] = {}
    steps: set[int] = set()
    for number, contents in state["state"].items():
        if number not in numbered:
            raise ExternalModelError(
                f"{path}: its optimizer has slots of a parameter {str(number)[:40]!r} that it does not list"
            )
        name, done = numbered[number], contents.get("step")
        if done is not None and not int(done):
            continue  # Adagrad has slots of what was never updated, such as frozen weights.
        for slot, value in contents.items():
            if slot == "step":
                steps.add(int(value))
            elif slot in canonical and isinstance(value, torch.Tensor):
                slots.setdefault(canonical[slot], {})[name] = _array(path, f"{slot} of {name}", value)
            elif value is not None:
                raise ExternalModelError(
                    f"{path}: its optimizer has slots {str(slot)[:40]!r}, which the --torch-optimizer has not"
                )
    return slots, steps


def _present(group: dict[str, Any], table: dict[str, str], kind: str) -> set[str]:
    """The slots that an optimizer with these settings has."""
    return {slot for slot in table if (slot, kind) not in _SWITCHED or group.get(_SWITCHED[slot, kind])}


def _scale(slots: dict[str, both.State], kind: str, rate: Callable[[str], float], back: bool = False) -> None:
    """Momentum from torch's meaning to Keras's, or back."""
    sign = -1 if kind == "sgd" else 1
    for name, value in slots.get("momentum_velocity", {}).items():
        factor = sign * rate(name)
        slots["momentum_velocity"][name] = value / factor if back else value * factor


def _completed(
    model: torch.nn.Module, tensors: dict[str, torch.Tensor], step: int | None, notes: list[str]
) -> dict[str, torch.Tensor]:
    """In the model's own order, with what the mapping leaves out as the model has it."""
    live = names.tensors(model)
    both.check_fit("torch", live, tensors, notes)
    found = {}
    for name, tensor in live.items():
        found[name] = tensors[name] if name in tensors else tensor.detach().clone()
        if name not in tensors and counts_batches(name):
            found[name].fill_(step or 0)
    return found


def _optimizer_state(
    live: torch.optim.Optimizer,
    model: torch.nn.Module,
    contents: both.CheckpointContents,
    target: str,
    notes: list[str],
) -> dict[str, Any]:
    kind, table = both.slots_of_class(live, SLOTS)
    both.check_kind(contents, kind, live, f"--torch-optimizer {target}")
    named = _names(model)
    rates = {float(group["lr"]) for group in live.param_groups}
    if len(rates) > 1:
        notes.append(f"{target} has groups of several learning rates, which stay; Keras has one")
    rate = both.rate_to_carry(contents, *rates, target, notes) if len(rates) == 1 else None
    if rate is not None:
        for group in live.param_groups:
            group["lr"] = rate
    rate_of = {named[id(p)]: float(group["lr"]) for group in live.param_groups for p in group["params"]}
    if contents.slots.get("momentum_velocity") and not all(rate_of.values()):
        raise ExternalModelError(
            f"{target}: its learning rate is 0, by which Keras's momentum would be divided"
        )
    slots = {slot: dict(state) for slot, state in contents.slots.items()}
    for name in (name for state in slots.values() for name in state):
        if name not in rate_of:
            raise ExternalModelError(
                f"Keras trains {name}, which {target} is not given; freeze it there, or give it"
            )
    _scale(slots, kind, rate_of.__getitem__, back=True)
    expected = [_present(group, table, kind) for group in live.param_groups]
    both.check_slots(slots, set().union(*expected), type(live).__name__)
    found = live.state_dict()
    parameters = [parameter for group in live.param_groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        name = named[id(parameter)]
        mine = {
            table[slot]: torch.from_numpy(np.array(state[name], order="C"))
            for slot, state in slots.items()
            if name in state
        }
        if mine:
            steps = {} if kind == "sgd" else {"step": torch.tensor(float(contents.step or 0))}
            found["state"][number] = steps | mine
    live.load_state_dict(found)
    return found
