"""train(spec, placement, out_dir) -> run record."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.checkpoint import CheckpointManager
from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.execution.checks import check_run, steps_behind
from parity.common.execution.process_context import find_folder, process_context, starts_ranks
from parity.common.execution.ranks import arrive, run_ranks
from parity.common.execution.training import end_if_not_finite, start_state
from parity.common.record import RecordWriter, claim_folder, run_of
from parity.common.spec import Instrumentation, Placement, RunOptions, TrainSpec
from parity.common.state.canonical import save_state
from parity.tf_impl import data, engines, phases, replay, runtime, state, taps
from parity.tf_impl.model import build_model
from parity.tf_impl.optimizers import build_optimizer
from parity.tf_impl.step import StepResult, apart, build_step, evaluate
from parity.tf_impl.strategy import open_strategy
from parity.tf_impl.strategy.cluster import lost_peers

_PRELOAD = ["parity.tf_impl.train", "sklearn.datasets"]


def train(
    spec: TrainSpec,
    placement: Placement,
    out_dir: Path,
    run_options: RunOptions = RunOptions(),
    instrumentation: Instrumentation = Instrumentation(),
) -> Path:
    """Train a spec on a placement and write its run record; returns the record's folder.

    Replicas that share a process live in this one; where there are several processes, it starts them,
    or is one of them under a launcher.

    Raises:
        ParityError: anything that can be foreseen, as one line.
    """
    spec = spec.resolved()
    check_run(spec, placement, run_options, instrumentation)
    engines.check(spec, placement)
    runtime.configure(placement)
    arguments = (spec, placement, out_dir, run_options, instrumentation)
    if placement.processes == 1 or starts_ranks(placement):
        claim_folder(out_dir)
    if placement.processes == 1 or not starts_ranks(placement):
        _train_rank(*arguments)
        return out_dir
    run_ranks(
        "parity.tf_impl.train:_train_rank",
        arguments,
        placement.processes,
        out_dir / "logs",
        # A fork of a process that has used a GPU cannot.
        [] if runtime.uses_gpu(placement) else _PRELOAD,
        placement.timeout_seconds,
        None,
        run_options.save is not None,
    )
    return out_dir


def _train_rank(
    spec: TrainSpec,
    placement: Placement,
    out_dir: Path,
    run_options: RunOptions,
    instrumentation: Instrumentation,
) -> None:
    runtime.configure(placement)
    arrive()
    with lost_peers(placement, out_dir):
        run = _Run(spec, placement, out_dir, run_options, instrumentation)
        with run.checkpoints:
            if instrumentation.replay is not None:
                replay.walk(run)
            else:
                if engines.owns_loop(placement):
                    run.step.train(run.plan, run.samples, run.steps, run.rates.scalars, run.record)
                else:
                    _loop(run)
                if not run.checkpoints.stopping:
                    run.finish()
        run.close()


def _loop(run: _Run) -> None:
    """The loop, where no engine brings its own: a step is read once the next has been launched."""
    held: deque[tuple[Any, Any, StepResult]] = deque()
    with runtime.launching_ahead(run.behind):
        try:
            for number, batch in run.batches():
                scalars = run.scalars(number)
                result = run.step(batch, scalars, number)
                # Those of the first update are recorded; others only take memory while they wait.
                held.append((number, scalars, result._replace(gradients=()) if run.rates.updates else result))
                if len(held) > run.behind:
                    run.record(*held[0])
                    held.popleft()
                after = number.stop if isinstance(number, range) else number + 1
                if run.checkpoints.due(after):
                    while held:
                        run.record(*held.popleft())
                    run.save(after)
                    if run.checkpoints.stopping:
                        break
        except Exception:
            # Where it was not the record that failed, the step before was whole, or is what failed.
            with suppress(Exception):
                if len(held) <= run.behind:
                    run.record(*held[0])
            raise
        while held:
            run.record(*held.popleft())


class _Run:
    """One process's training but for the loop: all that is built before, recorded within and written after."""

    def __init__(
        self,
        spec: TrainSpec,
        placement: Placement,
        out_dir: Path,
        run_options: RunOptions,
        instrumentation: Instrumentation,
    ) -> None:
        self.spec, self.placement, self.out_dir = spec, placement, out_dir
        self.run_options, self.replay = run_options, instrumentation.replay
        self.primary = primary = process_context(placement).rank == 0
        runtime.allow_tf32(spec.allows_tf32)
        self.samples, self.eval_samples = sources.load_for(spec)
        self.plan = BatchPlan.of(spec, placement)
        # The order of samples is no part of what was traced.
        traced = placement.model_copy(update={"sample_order_seed": None})
        self.strategy, self.model, self.optimizer, self.step = _build(
            spec, traced, run_options.recording == "full", run_options.taps
        )
        claims = placement.processes > 1 and not starts_ranks(placement)
        if claims and primary:
            # Only now: until all have met, another may still be looking for the part that comes next.
            claim_folder(out_dir)
        self.strategy.barrier()
        if claims:
            find_folder(out_dir)
        begin = start_state(spec, placement, run_options, instrumentation.replay)
        self.steps, self.rates = begin.steps, begin.rates
        state.load(begin.state, self.model, self.optimizer)
        state.load_own(begin.buffers, self.model, self.strategy)
        begun = state.export(self.model, self.optimizer, self.steps.start)
        if primary:
            save_state(out_dir / "initial.safetensors", begun)
        self.behind = steps_behind(spec, run_options) if runtime.launches_ahead(placement) else 0
        facts = {
            "versions": runtime.versions(),
            "devices": runtime.device_names(placement),
            "threads": runtime.thread_counts(),
            "data_hash": sources.data_hash(spec.data) if primary else None,
        }
        board = runtime.ScalarWriter(out_dir / "tensorboard") if run_options.tensorboard and primary else None
        replicas = self.strategy.recorded_replicas
        self._writer = RecordWriter(
            out_dir, spec, placement, replicas, facts, board, begin.kept, run_options, instrumentation
        )
        if run_options.taps:
            self._writer.tap_names(self.step.taps.names)
        run = run_of(out_dir)
        self.checkpoints = CheckpointManager(
            run, spec, placement, self.steps.start, primary, self.strategy.agreed, run_options
        )
        self._writer.start_clock()

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """(number, batch) of every step."""
        given, size = (self.plan, self.samples, self.strategy), self.placement.steps_per_call
        if size > 1:
            # The first alone: its gradients are recorded.
            starts = [0, *range(1, len(self.steps), size)] if self.steps else []
            calls = [self.steps[a:b] for a, b in itertools.pairwise([*starts, len(self.steps)])]
            return zip(calls, data.joined(*given, calls), strict=True)
        return zip(self.steps, data.batches(*given, self.steps), strict=True)

    def scalars(self, number: Any) -> Any:
        """The scalars of a step, or of each step of a call."""
        if isinstance(number, range):
            return [self.rates.scalars(step) for step in number]
        return self.rates.scalars(number)

    def record(self, number: Any, scalars: Any, result: StepResult) -> None:
        """Write what a step did, or each step of a call. Every process must call it."""
        if isinstance(number, range):
            self._writer.divide_time(len(number))
            for step in zip(number, scalars, apart(result), strict=True):
                self.record(*step)
            return
        numbers = np.asarray(result.numbers).tolist()
        self.rates.observe(number, *numbers[:2], bool(result.updated))
        self.checkpoints.observe(*numbers[:2])
        received, scale = [np.asarray(ids) for ids in result.ids], scalars.get("loss_scale", 1.0)
        last = 5 + len(received) if len(received) > 1 else 5
        seen = (bool(result.updated), numbers[5:last], numbers[last:])
        self._writer.step(number, scalars["learning_rate"], numbers[:5], received, scale, *seen)
        tapped = [table.numpy() for table in result.taps] if self.run_options.taps else []
        if tapped:
            self._writer.taps(number, tapped)
        if result.updated:
            end_if_not_finite(self, number, numbers[:5], received, tapped)
        if self.run_options.digests:
            self._writer.fingerprints(number, taps.parameter_fingerprints(self.model, self.strategy))
        if result.updated and self.rates.updates == 1:
            gradients = taps.reduced_gradients(self.model, result.gradients)
            if self.primary:
                save_state(self.out_dir / "first_gradients.safetensors", gradients)
            self._writer.skip_time()

    def save(self, step: int) -> None:
        """Keep a checkpoint of the state before a step. Every process must call it."""
        # Until all have recorded the step before, a kill could leave a checkpoint ahead of what some of them say.
        self.strategy.barrier()
        if self.spec.per_replica_statistics and self.placement.replicas > 1:
            held = state.export_buffers(self.model, self.strategy)
            self.checkpoints.save_replicas(self.strategy.recorded_replicas, held)
        self.checkpoints.save(step, state.export(self.model, self.optimizer, step), self.rates.kept())
        self._writer.skip_time()

    def close(self) -> None:
        """Leave the other processes; raises StoppedError where the run was asked to stop."""
        self.strategy.close(self.model)
        if self.checkpoints.stopping:
            self._writer.close()
            raise self.checkpoints.stopped()

    def finish(self) -> None:
        """Write the final state and what the evaluation says."""
        model, optimizer, strategy = self.model, self.optimizer, self.strategy
        self._writer.compare_replicas(self.steps.stop, self.step.compared())
        self._writer.memory(strategy.rank, taps.memory(model, optimizer))
        final = state.export(model, optimizer, self.steps.stop)
        if self.primary:
            save_state(self.out_dir / "final.safetensors", final)
        evaluated = self._evaluated()
        if repeats := self.run_options.phase_repeats:
            # Last, since it goes on training.
            scalars = self.rates.scalars(max(0, self.steps.stop - 1))
            self._writer.phases(strategy.rank, phases.measure(self.step, self.samples, scalars, repeats))
        self._writer.finish(evaluated)

    def _evaluated(self) -> tuple[float, float, int]:
        if engines.owns_loop(self.placement):
            return self.step.evaluate(self.plan, self.eval_samples)
        with self.optimizer.averaged():
            chunks = data.chunks(self.plan, self.eval_samples, self.strategy)
            totals = [evaluate(self.spec, self.model, self.strategy, chunk) for chunk in chunks]
        return tuple(map(sum, zip((0.0, 0, 0), *totals, strict=True)))


@functools.lru_cache(maxsize=2)
def _build(spec: TrainSpec, placement: Placement, recording: bool, taps: bool) -> tuple:
    """Tracing costs seconds, so the next run of the same spec in this process uses it again."""
    strategy = open_strategy(placement)
    model = build_model(spec, strategy)
    if engines.owns_loop(placement):
        return strategy, model, *engines.build(spec, model, strategy)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    step = build_step(spec, model, optimizer, strategy, recording, taps)
    return strategy, model, optimizer, step
