"""Traces: every tensor of one step by name, whole, as each replica saw it.

    RECORD/trace/step_N/replica_R.safetensors     of a step trained as always
    RECORD/forced/step_N/replica_R.safetensors    of one that was fed the tensors of another run
    .../evaluation/replica_R.safetensors          of the first batch evaluated, likewise

All tensors are in canonical layout. Rows of what belongs to samples are in the order in which the replica
received them. Gradients of the loss are those of the replica's loss *sum*, with any loss scale divided out.

    ids, inputs, targets            what the replica received
    before/STATE                    its canonical state: before/parameters/..., before/slots/..., ...
    forward/PATH                    outputs of each layer (`parity.common.record.taps.layers_of`), (samples, ...)
    loss_sum, count                 of the replica's samples
    backward/PATH                   gradient with respect to that output
    local_gradient/PARAMETER        before anything is reduced; not where parameters are sharded
    total/loss_sum, total/count     over the replicas, penalties on weights left out
    gradient/PARAMETER              of the global mean loss with its penalties, before clipping
    clipped/PARAMETER               as the optimizer is given it
    scalar/NAME                     likewise: learning rate, bias corrections, loss scale
    updated                         whether the step was not skipped
    after/STATE                     the canonical state after the step

Beside them lies layers.json: of each layer's path the name of the tensor that was its input. One that is no
output of a tapped layer is kept as `input/PATH`.

What a step is fed (`INJECTABLE`) stands in a folder of the same form, FOLDER/step_N/, for each replica of the run
that is fed; and FOLDER/step_N/state.safetensors, the canonical state that it begins with. Any name may be
missing there: the step then goes on with what is its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RecordError
from parity.common.record.files import read_json
from parity.common.state.canonical import State, load_state, save_state
from parity.common.state.canonical import tensor_of as state_tensor_of

Array = NDArray[Any]

TRACE, FORCED, STATES, EVALUATION = "trace", "forced", "states", "evaluation"
LAYERS = "layers.json"
SAMPLES = ("ids", "inputs", "targets")
# What reports call the stages, in the order in which a step makes them. `slots`, `update` and `buffers` are parts of
# `after`.
TITLES = {
    "ids": "sample ids",
    "inputs": "inputs and targets",
    "before": "state before the step",
    "forward": "forward",
    "loss": "loss sum and count",
    "backward": "backward",
    "local_gradient": "each replica's own gradients",
    "total": "sums over the replicas",
    "gradient": "reduced gradients",
    "clipped": "gradients after clipping",
    "scalar": "learning rate and other scalars",
    "slots": "optimizer slots",
    "update": "updated parameters",
    "buffers": "buffers",
    "evaluation": "evaluation",
}
# What a step can be fed.
INJECTABLE = ("ids", "inputs", "targets", "forward", "backward", "total", "gradient", "clipped", "scalar")
_STAGE_OF_HEAD = {"targets": "inputs", "loss_sum": "loss", "count": "loss", "updated": "update"}
_STAGE_OF_STATE = {"parameters": "update", "slots": "slots", "buffers": "buffers", "step": "update"}


def stage_of(name: str) -> str:
    """The stage of a tensor."""
    head, _, rest = name.partition("/")
    if head == "after":
        return _STAGE_OF_STATE[rest.partition("/")[0]]
    return _STAGE_OF_HEAD.get(head, head)


def tensor_of(name: str) -> str:
    """'after/slots/momentum/a/b', 'gradient/a/b' and 'before/parameters/a/b' are all the tensor 'a/b'."""
    head, _, rest = name.partition("/")
    return state_tensor_of(rest) if head in ("before", "after") else rest


def is_of_samples(name: str) -> bool:
    """Whether a tensor's rows are the replica's samples."""
    return name in SAMPLES or name.startswith(("forward/", "backward/"))


def step_folder(parent: Path, step: int | None) -> Path:
    """Where the trace of a step is, or for None that of the evaluation."""
    return parent / (EVALUATION if step is None else f"step_{step:06d}")


def state_file(record: Path, step: int) -> Path:
    """Where a run or a replay keeps the canonical state before a step."""
    return record / STATES / f"step_{step:06d}.safetensors"


def state_files(record: Path) -> dict[int, Path]:
    """What lies where `state_file` says, by the step."""
    return {
        int(path.stem.removeprefix("step_")): path
        for path in sorted((record / STATES).glob("step_*.safetensors"))
        if path.stem.removeprefix("step_").isdigit()
    }


def write_replica(folder: Path, replica: int, tensors: State) -> None:
    """Write what one replica saw."""
    folder.mkdir(parents=True, exist_ok=True)
    save_state(folder / f"replica_{replica}.safetensors", tensors)


def read_injected(parent: Path, step: int | None, replicas: range) -> list[State]:
    """What each of some replicas is to be fed in a step; nothing, where there is no file."""
    paths = [step_folder(parent, step) / f"replica_{replica}.safetensors" for replica in replicas]
    return [load_state(path, mapped=True) if path.exists() else {} for path in paths]


def injected_steps(parent: Path) -> list[int]:
    """The steps that a folder has something to feed to, in order."""
    return sorted(int(path.name.removeprefix("step_")) for path in parent.glob("step_*"))


def read_layers(folder: Path) -> dict[str, str]:
    """Of each layer's path the name of the tensor that was its input; nothing where that was not kept."""
    path = folder / LAYERS
    return {str(k): str(v) for k, v in read_json(path).items()} if path.exists() else {}


@dataclass(frozen=True)
class Trace:
    """A step read back: of each replica its tensors by name.

    fed_ids: where it was fed a batch, the ids of that; `ids` are those that its own loader gave.
    """

    replicas: tuple[State, ...]
    injected_ids: tuple[NDArray[np.int64], ...] | None = None

    @classmethod
    def read(cls, folder: Path, replicas: int) -> Trace:
        """Read the traces of all replicas of a step; raises RecordError where a file is missing or damaged."""
        if not folder.is_dir():
            raise RecordError(f"{folder}: missing; the replay did not come that far")
        paths = [folder / f"replica_{replica}.safetensors" for replica in range(replicas)]
        return cls(tuple(load_state(path, mapped=True) for path in paths))

    @cached_property
    def names(self) -> list[str]:
        """Of all tensors, as the first replica wrote them."""
        return list(self.replicas[0])

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Sample ids of the global batch, int64 (global batch,), ascending."""
        return np.sort(np.concatenate([tensors["ids"] for tensors in self.replicas]))

    def rows(self, name: str) -> Array:
        """Return a tensor with a row for each sample, (global batch, ...), in the order of `ids`."""
        injected = self.injected_ids if name not in SAMPLES else None
        ids = np.concatenate(injected or self.each("ids"))
        rows: Array = np.concatenate(self.each(name))
        return rows[np.argsort(ids, kind="stable")]

    def each(self, name: str) -> list[Array]:
        """Return a tensor as each replica has it, in its recorded shape."""
        return [tensors[name] for tensors in self.replicas]

    def summed(self, name: str) -> Array:
        """Return the sum over the replicas, in the shape of one: of loss sums, counts and local gradients."""
        with np.errstate(invalid="ignore"):  # infinities of either sign, where gradients have overflowed
            total: Array = np.sum(self.each(name), axis=0)
        return total

    def whole(self, name: str) -> Array:
        """Return a tensor that is comparable between placements: (global batch, ...), or summed, or that of replica 0."""
        if is_of_samples(name):
            return self.rows(name)
        if stage_of(name) in ("loss", "local_gradient"):
            return self.summed(name)
        return self.replicas[0][name]
