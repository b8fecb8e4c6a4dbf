"""What a trained model is used with: the weights and buffers of a run or of a checkpoint, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.common.base.errors import CheckpointError, RecordError
from parity.common.checkpoint.files import check_shapes, find
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
    damaged: list[str] = []
    if (last / FINAL).is_file() and (last / "header.json").is_file():
        spec, source = read_header(last).spec, last / FINAL
        if not isinstance(spec, TrainSpec):
            raise CheckpointError(
                f"{path}: a recorded script, without the spec that its model would be built by"
            )
        state: Mapping[str, Any] = load_state(source)
    else:
        checkpoint, damaged = find(path)
        spec, source, state = checkpoint.spec, checkpoint.folder, checkpoint.state()
    spec = spec.resolved()
    ema = spec.optimizer.ema
    averaged = ema is not None and ema.evaluate
    specs = parameter_specs(spec)
    names = {n: slot_name(AVERAGE, n) if averaged and p.trainable else n for n, p in specs.items()}
    found = {name: state[name] for name in names.values() if name in state}
    check_shapes(source, found, {names[n]: p.shape for n, p in specs.items()}, spec.master_dtype)
    tensors: State = {name: found[stored_name] for name, stored_name in names.items()}
    if state.get("step") is None or state["step"].shape:
        raise RecordError(f"{source}: lacks the step that it is of")
    return Weights(spec, int(state["step"]), source, tensors, tuple(damaged))
