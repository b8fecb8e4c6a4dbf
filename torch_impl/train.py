"""train(spec, placement, out_dir) -> run record."""

from __future__ import annotations

import atexit
import functools
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

from parity.common.base.errors import ParityError, RunError
from parity.common.checkpoint import CheckpointManager
from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.execution.checks import check_run, steps_behind
from parity.common.execution.operating_system import pin_to_cores
from parity.common.execution.process_context import ProcessContext, find_folder, process_context, starts_ranks
from parity.common.execution.ranks import arrive, lost_peer, reached, run_ranks
from parity.common.execution.training import end_if_not_finite, start_state
from parity.common.record import RecordWriter, claim_folder, run_of
from parity.common.spec import Instrumentation, Placement, RunOptions, TrainSpec
from parity.common.state.canonical import save_state
from parity.torch_impl import data, engines, phases, replay, runtime, state, taps
from parity.torch_impl.model import build_model
from parity.torch_impl.optimizers import build_optimizer
from parity.torch_impl.sharded_checkpoint import ShardWriter
from parity.torch_impl.step import StepResult, build_step, evaluate
from parity.torch_impl.strategy import Strategy, open_strategy
from parity.torch_impl.strategy.compiled import check_compile

_PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "parity.torch_impl.train",
    "sklearn.datasets",
]


def train(
    spec: TrainSpec,
    placement: Placement,
    out_dir: Path,
    run_options: RunOptions = RunOptions(),
    instrumentation: Instrumentation = Instrumentation(),
) -> Path:
    """Train a spec on a placement and write its run record; returns the record's folder.

    Starts the ranks itself, or is one of them under a launcher that has started them.

    Raises:
        ParityError: anything that can be foreseen, as one line.
    """
    spec = spec.resolved()
    check_run(spec, placement, run_options, instrumentation)
    engines.check(spec, placement)
    check_compile(placement)
    place = process_context(placement)
    runtime.configure(placement)
    arguments = (spec, placement, out_dir, run_options, instrumentation)
    if not starts_ranks(placement):
        os.environ.update(place.variables())
        _be_a_rank(place, arguments)
        return out_dir
    claim_folder(out_dir)
    spawned = engines.starts_ranks(placement)
    run_ranks(
        f"parity.torch_impl.train:{'_start_ranks' if spawned else '_train_rank'}",
        arguments,
        1 if spawned else placement.processes,
        out_dir / "logs",
        _PRELOAD,
        placement.timeout_seconds,
        _spawn if placement.launcher == "mp_spawn" and not spawned else None,
        run_options.save is not None,
    )
    return out_dir


def _spawn(target: Callable[..., None], arguments: tuple[Any, ...], ranks: int) -> list[Any]:
    return torch.multiprocessing.spawn(target, arguments, nprocs=ranks, join=False).processes


def _be_a_rank(place: ProcessContext, arguments: tuple[Any, ...]) -> None:
    """Train as the process that a launcher has started; what fails elsewhere ends in one line here."""
    try:
        _train_rank(*arguments)
    except ParityError:
        _leave_at_once()
        raise
    except Exception as error:
        _leave_at_once()
        said = lost_peer(error, dist.DistError, arguments[1].timeout_seconds)
        if said is not None:
            raise RunError(
                f"rank {place.rank} of {place.processes}, met at {place.meeting_point}: {said}; host:"
                f" {platform.node()}{reached(arguments[2])}; the first rank to fail says why"
            ) from None
        raise


def _leave_at_once() -> None:
    """Once all is said: gloo may abort or hang in an orderly exit while the group stands."""

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ParityError.exit_code)

    if dist.is_initialized():
        atexit.register(leave)


def _train_rank(
    spec: TrainSpec,
    placement: Placement,
    out_dir: Path,
    run_options: RunOptions,
    instrumentation: Instrumentation,
) -> None:
    local_rank = process_context(placement).local_rank
    pinned = pin_to_cores(placement, range(local_rank, local_rank + 1))
    runtime.configure(placement)
    arrive()
    begin = functools.partial(_Run, spec, placement, out_dir, run_options, instrumentation, pinned)
    if engines.owns_loop(placement):
        engines.run(spec, placement, run_options, begin)
    else:
        run = begin(open_strategy(placement))
        with run.checkpoints:
            if instrumentation.replay is not None:
                replay.walk(run)
            else:
                _loop(run)
                if not run.checkpoints.stopping:
                    run.finish()
        run.close()


def _start_ranks(
    spec: TrainSpec,
    placement: Placement,
    out_dir: Path,
    run_options: RunOptions,
    instrumentation: Instrumentation,
) -> None:
    """Be the process from which an engine starts the ranks."""
    arrive()
    begin = functools.partial(_Run, spec, placement, out_dir, run_options, instrumentation, False)
    engines.spawn(spec, placement, run_options, begin)


def _loop(run: _Run) -> None:
    """The loop, where no engine brings its own: where it pays, a step is read once the next has been launched."""
    held: list[tuple[int, dict[str, float], StepResult]] = []
    try:
        for number, batch in run.batches():
            scalars = run.rates.scalars(number)
            result = run.step(batch, scalars, number)
            if held:
                run.record(*held.pop())
            if run.behind and run.rates.updates:
                run.time_step()
                # Those of the first update are recorded; others only take memory while they wait.
                held.append((number, scalars, result._replace(gradients=[])))
            else:
                run.record(number, scalars, result)
            if run.checkpoints.due(number + 1):
                while held:
                    run.record(*held.pop())
                run.save(number + 1)
                if run.checkpoints.stopping:
                    break
    except Exception:
        # The step before was whole.
        if held:
            run.record(*held.pop())
        raise
    if held:
        run.record(*held.pop())


class _Run:
    """One rank's training but for the loop: all that is built before, recorded within and written after."""

    def __init__(
        self,
        spec: TrainSpec,
        placement: Placement,
        out_dir: Path,
        run_options: RunOptions,
        instrumentation: Instrumentation,
        pinned: bool,
        strategy: Strategy,
    ) -> None:
        self.spec, self.placement, self.out_dir, self.strategy = spec, placement, out_dir, strategy
        self.run_options, self.replay = run_options, instrumentation.replay
        self.primary = strategy.rank == 0
        if not starts_ranks(placement):
            if self.primary:
                claim_folder(out_dir)
            strategy.barrier()
            find_folder(out_dir)
        runtime.allow_tf32(spec.allows_tf32)
        self.samples, self.eval_samples = sources.load_for(spec)
        self.plan = BatchPlan.of(spec, placement)
        self.model = build_model(spec, strategy)
        self.optimizer = build_optimizer(spec.optimizer, self.model, strategy)
        begin = start_state(spec, placement, run_options, instrumentation.replay)
        self.steps, self.rates = begin.steps, begin.rates
        state.load(begin.state, self.model, self.optimizer)
        state.load_own(begin.buffers, self.model, strategy)
        begun = state.export(self.model, self.optimizer, self.steps.start)
        if self.primary:
            save_state(out_dir / "initial.safetensors", begun)
        full = run_options.recording == "full"
        self.step = build_step(spec, self.model, self.optimizer, strategy, full, run_options.taps)
        facts = {
            "versions": {**runtime.versions(), **engines.versions(placement)},
            "devices": runtime.device_names(placement),
            "threads": {**runtime.thread_counts(), "pinned": int(pinned)},
            "data_hash": sources.data_hash(spec.data) if self.primary else None,
        }
        board = (
            runtime.ScalarWriter(out_dir / "tensorboard")
            if run_options.tensorboard and self.primary
            else None
        )
        self._writer = RecordWriter(
            out_dir,
            spec,
            placement,
            strategy.recorded_replicas,
            facts,
            board,
            begin.kept,
            run_options,
            instrumentation,
        )
        if run_options.taps:
            self._writer.tap_names(self.step.taps.names)
        run = run_of(out_dir)
        self.checkpoints = CheckpointManager(
            run, spec, placement, self.steps.start, self.primary, strategy.agreed, run_options
        )
        sharded = run_options.save is not None and run_options.save.sharded
        self._shards = ShardWriter(self.model, self.optimizer, strategy) if sharded else None
        self.behind = steps_behind(spec, run_options) if runtime.launches_ahead(placement) else 0

    def batches(self) -> Iterator[tuple[int, Any]]:
        """(number, batch) of every step; the clock starts with the first."""
        self._writer.start_clock()
        batches = data.batches(self.plan, self.samples, self.strategy, self.steps)
        return zip(self.steps, batches, strict=True)

    def time_step(self) -> None:
        """A step has returned, and is to be recorded later. On a CPU it is done; of a GPU only reading it says so."""
        if self.strategy.device == "cpu":
            self._writer.divide_time(1)

    def record(self, number: int, scalars: dict[str, float], result: StepResult) -> None:
        """Write what a step did. Every rank must call it."""
        numbers, summed = (read := result.numbers.tolist())[:5], read[5:]
        self.rates.observe(number, *numbers[:2], result.updated)
        self.checkpoints.observe(*numbers[:2])
        received, scale = [ids.numpy() for ids in result.ids], scalars.get("loss_scale", 1.0)
        seen = (bool(result.updated), (), summed)
        self._writer.step(number, scalars["learning_rate"], numbers, received, scale, *seen)
        tapped = [table.cpu().numpy() for table in result.taps] if self.run_options.taps else []
        if tapped:
            self._writer.taps(number, tapped)
        if result.updated:
            end_if_not_finite(self, number, numbers, received, tapped)
        if self.run_options.digests:
            self._writer.fingerprints(number, taps.parameter_fingerprints(self.model, self.strategy))
        if result.updated and self.rates.updates == 1:
            gradients = taps.reduced_gradients(self.model, result.gradients)
            if self.primary:
                save_state(self.out_dir / "first_gradients.safetensors", gradients)
            self._writer.skip_time()

    def save(self, step: int) -> None:
        """Keep a checkpoint of the state before a step. Every rank must call it."""
        # Until all have recorded the step before, a kill could leave a checkpoint ahead of what some of them say.
        self.strategy.barrier()
        if self.spec.per_replica_statistics and self.placement.replicas > 1:
            held = state.export_buffers(self.model, self.strategy)
            self.checkpoints.save_replicas(self.strategy.recorded_replicas, held)
        if self._shards is None:
            held = state.export(self.model, self.optimizer, step)
        else:
            held = self._shards.export(step)
        self.checkpoints.save(step, held, self.rates.kept())
        self._writer.skip_time()

    def close(self) -> None:
        """Leave the other ranks; raises StoppedError where the run was asked to stop."""
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
        with optimizer.averaged():
            chunks = data.chunks(self.plan, self.eval_samples, strategy)
            totals = [evaluate(self.spec, model, strategy, chunk) for chunk in chunks]
        if repeats := self.run_options.phase_repeats:
            # Last, since it goes on training.
            scalars = self.rates.scalars(max(0, self.steps.stop - 1))
            self._writer.phases(strategy.rank, phases.measure(self.step, self.samples, scalars, repeats))
        self._writer.finish(tuple(map(sum, zip((0.0, 0, 0), *totals, strict=True))))
