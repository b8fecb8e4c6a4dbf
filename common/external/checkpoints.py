"""A checkpoint of the one framework as one of the other, through a mapping: weights, optimizer slots, step.

Each file is read and written in a process of its own framework (`{tf,torch}_impl/external/checkpoints.py`); between the
two stands `CheckpointContents`, whose slots have Keras's meanings. What those are, and from where:

| slot | Keras 3 (keras/src/optimizers) | torch (torch/optim) | relation |
| --- | --- | --- | --- |
| first_moment, second_moment of Adam and AdamW | momentum, velocity: m += (1-b1)(g-m), v += (1-b2)(g^2-v) | exp_avg, exp_avg_sq | equal: both correct the bias when they use them |
| largest_second_moment (amsgrad) | velocity_hat = max(velocity_hat, v) | max_exp_avg_sq, before the correction as well | equal |
| momentum_velocity of SGD | momentum: v = mu v - lr g | momentum_buffer: b = mu b + g, w -= lr b | v = -lr b |
| second_moment of RMSprop | velocity | square_avg | equal |
| first_moment of RMSprop (centered) | average_gradient | grad_avg | equal |
| momentum_velocity of RMSprop | momentum: m = mu m + lr g/root, w -= m | momentum_buffer: b = mu b + g/root, w -= lr b | m = lr b |
| accumulator of Adagrad | accumulator | sum | equal |
| second_moment, squared_change of Adadelta | accumulated_grad, accumulated_delta_var | square_avg, acc_delta | equal |
| first_moment, infinity_norm of Adamax | momentum, norm = max(b2 u, abs(g)) | exp_avg, exp_inf = max(b2 u, abs(g) + eps) | equal but for eps |

Where the learning rate is inside a slot, it is the one of the next step: the momentum then makes the same step in
both, whatever the rate was before, and the trainings agree from there on while the rate stays as it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import ExternalModelError, ParityError, RunError
from parity.common.base.files import naming_os_errors, partial_of
from parity.common.base.package import MODULES
from parity.common.base.words import listed
from parity.common.execution.interpreters import python_of, require
from parity.common.execution.processes.child import Child
from parity.common.execution.processes.service import Service
from parity.common.external.process.calls import qualified
from parity.common.external.process.resolve import prepare_import_path
from parity.common.spec.external import mapping as maps
from parity.common.spec.external.patterns import Array
from parity.common.spec.strategies import Framework

State = dict[str, Array]

# How files are called -> the framework that reads and writes them.
ENDINGS: dict[str, Framework] = {
    ".keras": "tensorflow",
    ".weights.h5": "tensorflow",
    ".pt": "torch",
    ".pth": "torch",
    ".safetensors": "torch",
}
# Format that a run or a checkpoint is exported to -> the framework that writes it, and how its files are called.
FORMATS: dict[str, tuple[Framework, tuple[str, ...]]] = {
    "keras": ("tensorflow", (".keras",)),
    "state_dict": ("torch", (".pt", ".pth")),
    "safetensors": ("torch", (".safetensors",)),
    "dcp": ("torch", (".dcp",)),
}
# Reading or writing a file of weights may take so long.
_SECONDS = 3600.0
_SIDES: dict[Framework, str] = {"tensorflow": "keras", "torch": "torch"}
# What wrappers put before every name of a state_dict (DistributedDataParallel, torch.compile).
_WRAPPERS = ("module.", "_orig_mod.")
_NAMES_SHOWN = 3
# Learning rates that are this close are one number, which Keras keeps in float32.
_SAME_RATE = 1e-6


@dataclass(frozen=True)
class CheckpointContents:
    """What a checkpoint holds, by the names of its framework.

    tensors: weights and buffers. slots: by canonical slot and tensor, in Keras's meaning. kind: of the optimizer,
    None without slots. step: updates done, None where the file does not say. learning_rate: of the next update,
    None where it is no one number of the file's (a schedule, groups).
    """

    tensors: State
    slots: dict[str, State] = field(default_factory=dict)
    kind: str | None = None
    step: int | None = None
    learning_rate: float | None = None


@dataclass(frozen=True)
class End:
    """One end of a carry-over: the file, and the user's code that its framework's process imports.

    model, optimizer: targets 'package.module:attribute', or None. inputs: (batch, ...) by name, as Keras takes them, for a
    model that has no weights before its first call.
    """

    path: Path
    model: str | None = None
    optimizer: str | None = None
    inputs: State | None = None

    @property
    def framework(self) -> Framework:
        """By the name of the file; raises ExternalModelError where that says nothing."""
        for ending, framework in ENDINGS.items():
            if self.path.name.endswith(ending) and self.path.name != ending:
                return framework
        raise ExternalModelError(
            f"{self.path}: a checkpoint ends in .keras or .weights.h5 (Keras), .pt, .pth or .safetensors (torch)"
        )


def convert_checkpoint(
    mapping_path: Path, source: End, destination: End, weights_only: bool = False, overwrite: bool = False
) -> list[str]:
    """Write the destination's file from the source's; returns what a person should know, in lines.

    Args:
        mapping_path: mapping.yaml of the two models.
        source: must exist.
        destination: must not; it is written whole or not at all.
        weights_only: leave out the optimizer and the step.
        overwrite: destination may exist; it is replaced once the new one is whole.

    Raises:
        ParityError: why it cannot be done, in one line.
    """
    sides = source.framework, destination.framework
    if sides[0] == sides[1]:
        raise ExternalModelError(
            f"{source.path} and {destination.path} are both of {sides[0]}; one is to be of each"
        )
    if not source.path.is_file():
        raise ExternalModelError(f"{source.path}: no such file")
    check_destination(destination.path, overwrite=overwrite)
    mapping = maps.read_mapping(mapping_path)
    _check_mapping(mapping_path, mapping, source, destination)
    for framework in sides:
        require(framework)
    contents = CheckpointContents(**_ask("read", source, {"weights_only": weights_only}))
    if contents.kind is None and not weights_only and source.optimizer is not None:
        flag = f"--{_SIDES[sides[0]]}-optimizer"
        raise ExternalModelError(f"{source.path}: holds no optimizer; leave out {flag}")
    if contents.kind is None and destination.optimizer is not None:
        raise ExternalModelError(f"there is no optimizer to carry; leave out --{_SIDES[sides[1]]}-optimizer")
    moved = translated(contents, mapping, sides[0])
    notes = _ask("write", destination, {"held": dict(vars(moved))})
    doubts = [
        f"{len(mapping.doubtful)} of {len(mapping.tensors)} lines of the mapping are doubtful, first"
        f" {pair.label}: {pair.doubt}"
        for pair in mapping.doubtful[:1]
    ]
    numbers = sum(array.size for array in moved.tensors.values())
    slots = ", ".join(moved.slots) or "none"
    optimizer = f"{moved.kind} at step {moved.step or 0}, slots: {slots}" if moved.kind else "no optimizer"
    return [
        *doubts,
        *notes,
        f"{destination.path}: {len(moved.tensors)} tensors, {numbers} numbers; {optimizer}",
    ]


def translated(contents: CheckpointContents, mapping: maps.Mapping, source: Framework) -> CheckpointContents:
    """The same by the names, and in the layouts, of the other framework.

    Raises:
        ExternalModelError: a tensor is missing, unknown, or of a shape that its rule does not fit; slots of a tensor
            whose rule is no bijection.
    """
    to_torch = source == "tensorflow"
    side = _SIDES[source]
    known = {name for pair in mapping.tensors for name in getattr(pair, side)}
    move = mapping.to_torch if to_torch else mapping.to_keras

    prefixes = () if to_torch else _WRAPPERS
    slots = {slot: _unwrapped(state, known, prefixes) for slot, state in contents.slots.items()}
    for pair in mapping.tensors:
        if pair.parsed.note and any(
            name in state for state in slots.values() for name in getattr(pair, side)
        ):
            raise ExternalModelError(
                f"the optimizer's slots of {pair.label} cannot be carried: {pair.parsed.note};"
                " carry the rest with --weights-only"
            )
    moved = {slot: move(_whole(state, mapping, side), partial=True) for slot, state in slots.items()}
    return replace(contents, tensors=move(_unwrapped(contents.tensors, known, prefixes)), slots=moved)


def _whole(state: State, mapping: maps.Mapping, side: str) -> State:
    """The slots of pairs that have some: of a tensor that was never updated they are zero, as before training.

    Tied names, and tensors that need no counterpart, have none.
    """
    for pair in mapping.tensors:
        names = getattr(pair, side)
        missing = [name for name in names if name not in state]
        if missing and len(missing) < len(names):
            raise ExternalModelError(
                f"{pair.label}: the optimizer has slots of {next(name for name in names if name in state)}, but none of"
                f" {missing[0]}; carry the weights with --weights-only"
            )
    ignored = getattr(mapping.ignored, side)
    return {name: value for name, value in state.items() if name not in ignored}


def _unwrapped(state: State, known: set[str], prefixes: Sequence[str]) -> State:
    """Without what wrappers have put before all names, unless the mapping has it too."""
    for prefix in prefixes:
        if (
            state
            and all(name.startswith(prefix) for name in state)
            and not any(name.startswith(prefix) for name in known)
        ):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def check_destination(
    path: Path, error: type[ParityError] = ExternalModelError, overwrite: bool = False
) -> None:
    """Raise an `error` unless a new file can be written there; `overwrite`: or one take the place of another file."""
    for taken in (path, partial_of(path)):
        if overwrite and taken == path and path.is_file():
            continue
        if taken.exists() or taken.is_symlink():
            whose = "" if taken == path else ", which an export that was ended may have left"
            raise error(f"{taken}: already there{whose}; give a new file or remove this one")
    if not path.parent.is_dir():
        raise error(f"{path}: its folder is not there; make it first")


def _check_mapping(path: Path, mapping: maps.Mapping, source: End, destination: End) -> None:
    left = [f"{name} ({side})" for side in _SIDES.values() for name in getattr(mapping.unmapped, side)]
    if left:
        raise ExternalModelError(
            f"{path}: no counterpart is known of {listed(left, _NAMES_SHOWN)}; give each a line in"
            " tensors or, with the reason, in ignored"
        )
    for end in (source, destination):
        needs = end is destination and end.framework == "tensorflow"
        if (needs or end.path.name.endswith(".weights.h5")) and end.model is None:
            raise ExternalModelError(
                f"{end.path}: name the Keras model with --keras package.module:attribute{_made_for(mapping.keras)}"
            )
        if end.optimizer is not None and end.model is None and end.framework == "torch":
            raise ExternalModelError(
                "--torch-optimizer needs the model whose parameters it updates: name it with"
                f" --torch{_made_for(mapping.torch)}"
            )


def _made_for(target: str) -> str:
    return f" (the mapping was made for {target})" if target else ""


# --- What both frameworks check of a checkpoint ---


def slots_of_class(
    optimizer: Any, known: Mapping[type, tuple[str, dict[str, str]]]
) -> tuple[str, dict[str, str]]:
    """Return the kind of an optimizer, and by canonical slot what its framework calls it.

    Args:
        known: by class.

    Raises:
        ExternalModelError: it is of another class.
    """
    if type(optimizer) not in known:
        raise ExternalModelError(
            f"slots of {qualified(type(optimizer))} cannot be carried; those of"
            f" {', '.join(cls.__name__ for cls in known)} can; carry the weights with --weights-only"
        )
    return known[type(optimizer)]


def check_kind(contents: CheckpointContents, kind: str, optimizer: Any, target: str) -> None:
    """Raise ExternalModelError where a checkpoint is of another kind than the optimizer that `target` gives."""
    if kind != contents.kind:
        raise ExternalModelError(
            f"the checkpoint is of {contents.kind}, {target} gives a {type(optimizer).__name__}: no rule takes one's"
            " slots to the other's; carry the weights with --weights-only"
        )


def check_fit(side: str, live: Mapping[str, Any], tensors: Mapping[str, Any], notes: list[str]) -> None:
    """Check that a model has the tensors that the mapping gives; note those that stay as it is built with them.

    Args:
        side: 'keras' or 'torch'.
        live: the model's tensors by name.
        tensors: arrays or tensors by name.
        notes: for people.

    Raises:
        ExternalModelError: the model lacks a tensor, or has it in another shape.
    """
    for name, value in tensors.items():
        if name not in live:
            raise ExternalModelError(
                f"the --{side} model has no tensor {name!r}; it is not the one the mapping is for"
            )
        own, given = tuple(live[name].shape), tuple(value.shape)
        if own != given:
            raise ExternalModelError(
                f"the --{side} model's {name} has the shape {own}, the mapping gives {given}"
            )
    set_now = {id(live[name]) for name in tensors}
    kept = [
        name for name, tensor in live.items() if id(tensor) not in set_now and not maps.counts_batches(name)
    ]
    if kept:
        names = ", ".join(kept)
        notes.append(f"as the --{side} model is built with, since the mapping ignores them: {names}")


def rate_to_carry(contents: CheckpointContents, own: float, target: str, notes: list[str]) -> float | None:
    """Return the checkpoint's learning rate, and note it, where the optimizer that `target` gives has another."""
    rate = contents.learning_rate
    # They may be one number, but for the float32 that Keras keeps it in.
    if rate is None or abs(rate - own) <= _SAME_RATE * abs(own):
        return None
    notes.append(f"learning rate {rate:g} carried; {target} itself has {own:g}")
    return rate


def check_slots(given: Mapping[str, State], expected: set[str], optimizer: str) -> None:
    """Raise ExternalModelError where an optimizer does not have just the slots that are to be carried into it."""
    for slot in sorted(set(given) ^ expected):
        has = "has" if slot in expected else "has no"
        raise ExternalModelError(
            f"{optimizer} {has} slots {slot}, and the other framework's optimizer"
            f" {'has none' if slot in expected else 'does'}: give both the same settings, or carry the weights alone"
            " with --weights-only"
        )


# --- A framework's own formats, of runs and checkpoints ---


def export_checkpoint(path: Path, kind: str, out: Path) -> dict[str, Any]:
    """Have `out` written from a run or a checkpoint; returns what the framework's `convert.export` does.

    Raises:
        ParityError: the framework is not installed, or cannot do it, in one line.
    """
    framework = FORMATS[kind][0]
    require(framework)
    job = {"path": str(path), "kind": kind, "out": str(out)}
    return dict(_in_child(framework, "export", job, RunError))


# --- The processes ---


def _ask(action: str, end: End, given: dict[str, Any]) -> Any:
    """Have a process of the end's framework read or write its file; what that returns."""
    job = {
        "path": str(end.path.absolute()),
        "model": end.model,
        "optimizer": end.optimizer,
        "inputs": end.inputs,
        **given,
    }
    return _in_child(end.framework, action, job)


def _in_child(
    framework: Framework, action: str, job: dict[str, Any], error: type[ParityError] = ExternalModelError
) -> Any:
    service, name = f"{__name__}:Conversions", f"the {framework} process"
    with Child(service, framework, python=python_of(framework), name=name, error=error) as child:
        return child.ask(action, job, _SECONDS)


class Conversions(Service):
    """The child's side: `{tf,torch}_impl/external/checkpoints.py` and `{tf,torch}_impl/convert.py`."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework

    def read(
        self, path: str, model: str | None, optimizer: str | None, inputs: State | None, weights_only: bool
    ) -> dict[str, Any]:
        side = self._side(path, model, optimizer)
        with naming_os_errors(ExternalModelError, f"{path}: cannot be read"):
            return dict(vars(side.read(Path(path), model, optimizer, weights_only, inputs)))

    def write(
        self, path: str, model: str | None, optimizer: str | None, inputs: State | None, held: dict[str, Any]
    ) -> list[str]:
        side = self._side(path, model, optimizer)
        with naming_os_errors(ExternalModelError, f"{path}: cannot be written"):
            return list(side.write(Path(path), model, optimizer, CheckpointContents(**held), inputs))

    def export(self, path: str, kind: str, out: str) -> dict[str, Any]:
        self.about = path
        module = importlib.import_module(f"{MODULES[self._framework]}.convert")
        with naming_os_errors(RunError, f"{out}: cannot be written"):
            return dict(module.export(Path(path), kind, Path(out)))

    def _side(self, path: str, *targets: str | None) -> Any:
        self.about = path
        side = importlib.import_module(f"{MODULES[self._framework]}.external.checkpoints")
        if any(targets):
            prepare_import_path(Path.cwd(), self._framework)
        return side


def precision_of(dtypes: set[Any]) -> str:
    """What a model is built in to hold tensors of these types without loss."""
    return "float64" if np.dtype("float64") in dtypes else "float32"
