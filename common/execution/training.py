"""What every training begins with, and when it must end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RunError
from parity.common.checkpoint.files import check_fits, checkpoints_of, read_checkpoint, step_of
from parity.common.record import run_of
from parity.common.record.invariants import Ids, not_finite
from parity.common.reference import StepScalars
from parity.common.spec import Placement, Replay, RunOptions, TrainSpec
from parity.common.state.canonical import State, initial_state, load_state

if TYPE_CHECKING:
    from parity.common.execution.run import Run


@dataclass(frozen=True)
class StartState:
    """What a run begins with.

    steps: those that it trains. state: canonical. rates: gives their scalars. kept: what these know, where the
    run goes on from a checkpoint. buffers: of a replica its own, where it has them.
    """

    steps: range
    state: Mapping[str, NDArray[np.generic]]
    rates: StepScalars
    kept: dict[str, float | None] | None = None
    buffers: Callable[[int], State] = lambda replica: {}


def start_state(
    spec: TrainSpec, placement: Placement, run_options: RunOptions, replay: Replay | None
) -> StartState:
    """What a run begins with: the initial state, a checkpoint, or what its replay names.

    Raises CheckpointError where it is to go on from what is damaged, or of another spec.
    """
    rates, stop = StepScalars(spec), run_options.steps_of(spec.steps)
    if run_options.resume is not None:
        checkpoint = read_checkpoint(Path(run_options.resume))
        check_fits(checkpoint, spec, stop, placement)
        kept = checkpoint.manifest.rates
        rates.restore(kept)
        return StartState(range(checkpoint.step, stop), checkpoint.state(), rates, kept, checkpoint.buffers)
    part = replay or Replay(stop=stop)
    begin = None if part.begin is None else load_state(Path(part.begin))
    state = begin or initial_state(spec, placement.sample_order_seed)
    return StartState(range(part.first_step, part.stop), state, rates)


def end_if_not_finite(
    run: Run, number: int, numbers: Sequence[float], received: Sequence[Ids], taps: Sequence[Any]
) -> None:
    """End a run that saves at its first step whose loss or norms are not finite; every process must call it.

    What it would go on to save is worth nothing, and would replace what is.

    Args:
        run: whose step it is.
        number: the step; it is recorded, and was not skipped.
        numbers: its loss sum, count, and the norms of gradient, parameters and update: the same everywhere.
        received: its sample ids, of each replica that this process speaks for.
        taps: of these replicas what was tapped of it, if anything was.

    Raises:
        RunError: names the step, what is not finite, the replica and the sample or tensor where these are known,
            and the last checkpoint before it.
    """
    if run.run_options.save is None:
        return
    loss_sum, _, *norms = numbers
    found = not_finite(loss_sum, *norms)
    if found is None:
        return
    run.checkpoints.wait_until_written()
    # Of each replica: 1 + the first sample, and 1 + the first tensor.
    firsts = np.zeros((2, run.placement.replicas))
    epoch = run.plan.epoch(number)
    for place, replica in enumerate(run.strategy.recorded_replicas):
        finite = [_finite(run.samples.rows(np.array([each]), epoch)[0]) for each in received[place]]
        if not all(finite):
            firsts[0, replica] = 1 + received[place][finite.index(False)]
        if len(taps) and not np.isfinite(taps[place]).all():
            firsts[1, replica] = 1 + np.flatnonzero(~np.isfinite(taps[place]).all(1))[0]
    samples, tensors = np.reshape(run.strategy.agreed(firsts.ravel().tolist()), firsts.shape).astype(int)
    kept = [folder for folder in checkpoints_of(run_of(run.out_dir)) if step_of(folder) <= number]
    where = f"the last checkpoint before it is {kept[-1]}" if kept else "there is no checkpoint before it"
    if samples.any():
        replica = int(np.flatnonzero(samples)[0])
        which = f"sample {samples[replica] - 1}, of replica {replica}, is not finite"
    elif tensors.any():
        # Where all replicas compute with the same, all have it.
        first = tensors[tensors > 0].min()
        name, replica = run.step.taps.names[first - 1], int(np.flatnonzero(tensors == first)[0])
        which = f"its first tensor that is not finite is {name}, of replica {replica}"
    else:
        which = "all samples are finite; going on from there with --taps names the tensor"
    raise RunError(f"step {number}: {found}; {which}; {where}")


def _finite(values: Any) -> bool:
    return not np.issubdtype(values.dtype, np.floating) or bool(np.isfinite(values).all())
