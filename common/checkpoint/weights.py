"""What a trained model is used with: the weights and buffers of a run or of a checkpoint, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.common.base.errors import CheckpointError, RecordError
from parity.common.checkpoint import find
from parity.common.record import parts_of
from parity.common.record.header import read_header
from parity.common.reference import AVERAGE
from parity.common.spec import TrainSpec
from parity.common.state.canonical import State, load_state, parameter_specs, slot_name

FINAL = "final.safetensors"


@dataclass(frozen=True)
class Weights:
    """Of a model as it is evaluated.

    spec: resolved. step: the first that these weights have not been trained by. source: where they lie.
    tensors: parameters and buffers by canonical name; parameters are their average where the spec
        evaluates with that.
    passed_over: in one line each, what was wrong with later checkpoints.
    """

    spec: TrainSpec
    step: int
    source: Path
    tensors: State
    passed_over: tuple[str, ...] = ()


def read_weights(path: Path) -> Weights:
    """The weights of a checkpoint, or of a run: of its end, or of its latest whole checkpoint.

    Raises:
        CheckpointError: there is neither, or it is damaged.
        RecordError: the final state is damaged.
    """
    last = parts_of(path)[-1]
    if (last / FINAL).is_file() and (last / "header.json").is_file():
        spec = read_header(last).spec
        if not isinstance(spec, TrainSpec):
            raise CheckpointError(
                f"{path}: a recorded script, without the spec that its model would be built by"
            )
        return _weights(spec.resolved(), last / FINAL, load_state(last / FINAL))
    checkpoint, damaged = find(path)
    return _weights(checkpoint.spec.resolved(), checkpoint.folder, checkpoint.state(), tuple(damaged))


def _weights(
    spec: TrainSpec, source: Path, state: Mapping[str, Any], passed_over: tuple[str, ...] = ()
) -> Weights:
    ema = spec.optimizer.ema
    averaged = ema is not None and ema.evaluate
    tensors: State = {}
    for name, parameter in parameter_specs(spec).items():
        stored_name = slot_name(AVERAGE, name) if averaged and parameter.trainable else name
        if stored_name not in state:
            raise RecordError(f"{source}: lacks {stored_name}")
        tensors[name] = state[stored_name]
        if tensors[name].shape != parameter.shape or tensors[name].dtype != spec.master_dtype:
            raise RecordError(
                f"{source}: {stored_name} is {tensors[name].dtype} of shape {tensors[name].shape}, should be"
                f" {spec.master_dtype} of shape {parameter.shape}"
            )
    if state.get("step") is None or state["step"].shape:
        raise RecordError(f"{source}: lacks the step that it is of")
    return Weights(spec, int(state["step"]), source, tensors, passed_over)
