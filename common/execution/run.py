"""One process's training: what both frameworks do before, within and after the loop, and the loop itself."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RunError
from parity.common.checkpoint import CheckpointManager
from parity.common.checkpoint.files import Checkpoint, check_fits, checkpoints_of, read_checkpoint, step_of
from parity.common.data import sources
from parity.common.data.plan import Ids
from parity.common.execution import hooks
from parity.common.execution.checks import feeds_back
from parity.common.execution.kept_states import KeptStates
from parity.common.execution.phases import measure
from parity.common.execution.process_context import find_folder, starts_ranks
from parity.common.execution.trace_replay import TraceReplay
from parity.common.record import RecordWriter, claim_folder, run_of
from parity.common.record.invariants import StepFacts, not_finite
from parity.common.record.scalars import EventWriter
from parity.common.reference import StepScalars
from parity.common.spec import Instrumentation, Placement, Replay, RunOptions, TrainSpec
from parity.common.state.canonical import initial_state, load_state, save_state

Scalars = dict[str, float]
Batch = Any  # of the framework


class Side(NamedTuple):
    """The modules of a framework's side that a run works with; a test holds that both sides have the same functions.

    data: batch plan -> what the replicas receive. state: canonical state <-> live model and optimizer. taps: tensors by
    canonical name, fingerprints of them, and the memory they take.
    """

    data: Any
    state: Any
    taps: Any
    phases: Any
    probe: Any
    runtime: Any


class StepNumbers(NamedTuple):
    """A step's result on the host.

    numbers: loss sum, count, norms of gradient, parameters and update, all global. own_norms, summed: by which
    replicas are compared, as `StepFacts` has them. ids, taps: of each replica that this process speaks for.
    """

    numbers: list[float]
    own_norms: Sequence[float]
    summed: Sequence[float]
    ids: list[Ids]
    taps: list[NDArray[np.float64]]


class Run(ABC):
    """One process's training: what is built before the loop, recorded within it and written after it.

    strategy: None opens the placement's. step: the training step, a callable (batch, scalars, number) -> StepResult.
    behind: how many steps may have been launched since the one that is read.
    """

    side: Side

    def __init__(
        self,
        spec: TrainSpec,
        placement: Placement,
        out_dir: Path,
        run_options: RunOptions,
        instrumentation: Instrumentation,
        strategy: Any = None,
    ) -> None:
        self.run_options, self.replay = run_options, instrumentation.replay
        self.spec, self.placement, self.out_dir = spec, placement, out_dir
        self.strategy = strategy = strategy or self.open_strategy()
        self.primary = strategy.rank == 0
        claims = not claimed_before(placement)
        if claims and self.primary:
            claim_folder(out_dir)
        strategy.barrier()
        if claims:
            find_folder(out_dir)
        self.side.runtime.allow_tf32(spec.allows_tf32)
        self.samples, self.eval_samples = sources.load_for(spec)
        self.plan = self.side.data.plan_of(spec, placement)
        self.model, self.optimizer, self.step = self.build()
        begin = start_state(spec, placement, run_options, instrumentation.replay)
        self.steps, state, self.rates, checkpoint = begin
        hooks.attach(self)
        self.load(state)
        if checkpoint is not None:
            self.side.state.load_own(checkpoint.buffers, self.model, strategy)
        began = time.perf_counter()
        self._save_state("initial", self.steps.start)
        self._kept_states = KeptStates(self, state, time.perf_counter() - began)
        board = None
        if run_options.tensorboard and self.primary:
            board = EventWriter(out_dir / "tensorboard")
        replicas = strategy.recorded_replicas
        kept = None if checkpoint is None else checkpoint.manifest.rates
        self._writer = RecordWriter(
            out_dir, spec, placement, replicas, self.facts(), board, kept, run_options, instrumentation
        )
        if run_options.taps:
            self._writer.tap_names(self.step.taps.names)
        self.checkpoints = CheckpointManager(
            run_of(out_dir), spec, placement, self.steps.start, self.primary, strategy.agreed, run_options
        )
        # Not where the next step needs what this one gave, or where the record holds what is replaced by it.
        waits = feeds_back(spec) or run_options.digests
        self.behind = 0 if waits or not self.side.runtime.launches_ahead(placement) else 1

    @abstractmethod
    def open_strategy(self) -> Any:
        """The placement's strategy; meets the other processes."""

    @abstractmethod
    def build(self) -> tuple[Any, Any, Any]:
        """The model, the optimizer and the step, before any state is loaded."""

    @abstractmethod
    def read(self, result: Any) -> StepNumbers:
        """A step's result on the host; waits for it."""

    def train(self) -> None:
        """Do all of the run: train it, or what its replay asks for, and write its record to the end."""
        with self.checkpoints:
            if self.replay is not None:
                TraceReplay(self, self.replay, self.side.probe.Probe(self.step)).replay()
            else:
                self.loop()
                if not self.checkpoints.stopping:
                    self.finish()
        self.close()

    def loop(self) -> None:
        """Train all steps, where no engine brings its own loop: where it pays, one is read once the next has been launched."""
        held: list[tuple[Any, Any, Any]] = []

        def record_held() -> None:
            while held:
                self.record(*held.pop())

        try:
            for number, batch in self.batches():
                scalars = self.scalars(number)
                result = self.step(batch, scalars, number)
                record_held()
                if self.behind and self.may_wait():
                    self.launched()
                    # Gradients of the first update are recorded; others only take memory while they wait.
                    left = result._replace(gradients=()) if self.rates.updates else result
                    held.append((number, scalars, left))
                else:
                    self.record(number, scalars, result)
                after = number.stop if isinstance(number, range) else number + 1
                if self._kept_states.due(after):
                    record_held()
                    self._kept_states.keep(after)
                    self._writer.skip_time()
                if self.checkpoints.due(after):
                    record_held()
                    self.save(after)
                    if self.checkpoints.stopping:
                        break
        except Exception:
            # The step before was whole. Should recording it fail too, that came first, and is what ends the run.
            record_held()
            raise
        record_held()

    def facts(self) -> dict[str, Any]:
        """What the record's header says of this process."""
        runtime = self.side.runtime
        return {
            "versions": runtime.versions(),
            "devices": runtime.device_names(self.placement),
            "threads": runtime.thread_counts(),
            "data_hash": sources.data_hash(self.spec.data) if self.primary else None,
        }

    def load(self, state: Any) -> None:
        """Set model and optimizer from a canonical state."""
        self.side.state.load(state, self.model, self.optimizer)

    def batches(self) -> Iterator[tuple[Any, Batch]]:
        """(number, batch) of every step; the clock starts with the first."""
        self._writer.start_clock()
        batches = self.side.data.batches(self.plan, self.samples, self.strategy, self.steps)
        return zip(self.steps, batches, strict=True)

    def scalars(self, number: Any) -> Any:
        """The scalars of a step."""
        return self.rates.scalars(number)

    def may_wait(self) -> bool:
        """Whether a step may be recorded once the next has been launched, with all that it left behind."""
        return True

    def launched(self) -> None:  # noqa: B027
        """A step has returned, and is recorded later."""

    def record(self, number: Any, scalars: Any, result: Any) -> None:
        """Write what a step did. Every process must call it."""
        numbers, own_norms, summed, ids, tapped = self.read(result)
        self.rates.observe(number, numbers[0], numbers[1], bool(result.updated))
        self.checkpoints.observe(*numbers[:2])
        rate, scale = scalars["learning_rate"], scalars.get("loss_scale", 1.0)
        facts = StepFacts(rate, numbers, ids, scale, bool(result.updated), own_norms, summed)
        self._writer.step(number, facts)
        if tapped:
            self._writer.taps(number, tapped)
        if result.updated:
            end_if_not_finite(self, number, numbers, ids, tapped)
        if self.run_options.digests:
            self._writer.fingerprints(
                number, self.side.taps.parameter_fingerprints(self.model, self.strategy)
            )
        if result.updated and self.rates.updates == 1 and self.run_options.keeps_states:
            gradients = self.side.taps.reduced_gradients(self.model, result.gradients)
            if self.primary:
                save_state(self.out_dir / "first_gradients.safetensors", gradients)
            self._writer.skip_time()

    def save(self, step: int) -> None:
        """Keep a checkpoint of the state before a step. Every process must call it."""
        # Until all have recorded the step before, a kill could leave a checkpoint ahead of what some of them say.
        self.strategy.barrier()
        own = {}
        if self.spec.per_replica_statistics and self.placement.replicas > 1:
            held = self.side.state.export_buffers(self.model, self.strategy)
            own = dict(zip(self.strategy.recorded_replicas, held, strict=True))
        self.checkpoints.save(step, self.exported(step), self.rates.kept(), own)
        self._writer.skip_time()

    def exported(self, step: int) -> Any:
        """The state before a step, or this process's shard of it, for a checkpoint."""
        return self.side.state.export(self.model, self.optimizer, step)

    def close(self) -> None:
        """Leave the other processes; raises StoppedError where the run was asked to stop."""
        self.strategy.close(self.model)
        if self.checkpoints.stopping:
            self._writer.close()
            raise self.checkpoints.stopped()

    def finish(self) -> None:
        """Write the final state and what the evaluation says."""
        rank = self.strategy.rank
        self._writer.compare_replicas(self.steps.stop, self.step.compared())
        self._writer.of_rank("memory", rank, self.side.taps.memory(self.model, self.optimizer))
        self._save_state("final", self.steps.stop)
        evaluated = self.evaluated()
        if repeats := self.run_options.phase_repeats:
            # Last, since it goes on training.
            scalars = self.rates.scalars(max(0, self.steps.stop - 1))
            measured = measure(self.side, self.step, self.samples, scalars, repeats)
            self._writer.of_rank("phases", rank, measured)
        self._writer.finish(evaluated)

    def evaluated(self) -> tuple[float, float, int]:
        """(loss sum, count, correct) over all evaluation samples."""
        with self.optimizer.averaged():
            chunks = self.side.data.chunks(self.plan, self.eval_samples, self.strategy)
            totals = [self.step.evaluate(chunk) for chunk in chunks]
        loss_sum, count, correct = map(sum, zip((0.0, 0.0, 0), *totals, strict=True))
        return loss_sum, count, correct

    def _save_state(self, name: str, step: int) -> None:
        if not self.run_options.keeps_states:
            return
        held = self.side.state.export(self.model, self.optimizer, step)
        if self.primary:
            save_state(self.out_dir / f"{name}.safetensors", held)


def claimed_before(placement: Placement) -> bool:
    """Whether a run's folder is made by the process that the user has started, before there are ranks."""
    return placement.processes == 1 or starts_ranks(placement)


def start_state(
    spec: TrainSpec, placement: Placement, run_options: RunOptions, replay: Replay | None
) -> tuple[range, Mapping[str, NDArray[np.generic]], StepScalars, Checkpoint | None]:
    """What a run begins with: the initial state, a checkpoint, or what its replay names.

    Returns the steps that it trains, its canonical state, what gives the steps' scalars, and the checkpoint from which
    it goes on, if from any. Raises CheckpointError where that is damaged, or of another spec.
    """
    rates, stop = StepScalars(spec), run_options.steps_of(spec.steps)
    if run_options.resume is not None:
        checkpoint = read_checkpoint(Path(run_options.resume))
        check_fits(checkpoint, spec, stop, placement)
        rates.restore(checkpoint.manifest.rates)
        return range(checkpoint.step, stop), checkpoint.state(), rates, checkpoint
    part = replay or Replay(stop=stop)
    begin = None if part.begin is None else load_state(Path(part.begin))
    state = begin or initial_state(spec, placement.sample_order_seed)
    return range(part.first_step, part.stop), state, rates, None


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
