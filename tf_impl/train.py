"""train(spec, placement, out_dir) -> run record."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from parity.common.execution.checks import check_run
from parity.common.execution.hooks import around, rank_function, scope
from parity.common.execution.process_context import starts_ranks
from parity.common.execution.rank_failures import lost_workers
from parity.common.execution.ranks import arrive, run_ranks
from parity.common.execution.run import Run, Side, StepNumbers, claimed_before
from parity.common.execution.step import StepResult
from parity.common.record import claim_folder
from parity.common.spec import Instrumentation, Placement, RunOptions, TrainSpec
from parity.tf_impl import data, engines, phases, probe, runtime, state, taps
from parity.tf_impl.engines import keras_fit
from parity.tf_impl.graphs.steps import SeveralStepsGraph, apart, joined, launching_ahead
from parity.tf_impl.model import build_model
from parity.tf_impl.optimizers import build_optimizer
from parity.tf_impl.step import Step
from parity.tf_impl.strategy import open_strategy
from parity.tf_impl.strategy.deadline import ending_vain_waits

_PRELOAD = ["parity.tf_impl.train", "sklearn.datasets"]
# What TensorFlow raises where another process of a run has gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
)


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
    runtime.configure(placement, deterministic="nondeterministic" not in spec.stock)
    arguments = (spec, placement, out_dir, run_options, instrumentation)
    if claimed_before(placement):
        claim_folder(out_dir)
    if placement.processes == 1 or not starts_ranks(placement):
        train_rank(*arguments)
        return out_dir
    run_ranks(
        *rank_function("parity.tf_impl.train:train_rank", *arguments),
        placement.processes,
        out_dir / "logs",
        # A fork of a process that has used a GPU cannot.
        [] if runtime.uses_gpu(placement) else _PRELOAD,
        placement.timeout_seconds,
        None,
        run_options.save is not None,
    )
    return out_dir


def train_rank(*arguments: Any) -> None:
    """Train as one of the processes; with the arguments of `train`, the spec resolved."""
    spec, placement, out_dir, *_ = arguments
    runtime.configure(placement, deterministic="nondeterministic" not in spec.stock)
    arrive()
    with lost_workers(placement, out_dir, _LOST), ending_vain_waits(placement, out_dir):
        Training(*arguments).train()


class Training(Run):
    """One process's training, with one replica or several."""

    side = Side(data, state, taps, phases, probe, runtime)

    def open_strategy(self) -> Any:
        # The order of samples is no part of what was traced.
        traced = self.placement.model_copy(update={"sample_order_seed": None})
        key = (self.spec, traced, self.run_options.recording == "full", self.run_options.taps)
        # Tracing costs seconds, so the next run of the same spec in this process uses it again; not one that
        # runs inside another context, or under other hooks.
        strategy, *self._built = scope().cached(key, lambda: _build(*key))
        return strategy

    def build(self) -> tuple[Any, ...]:
        return tuple(self._built)

    def loop(self) -> None:
        if self.placement.engine_owns_loop:
            self.step.train(self)
        else:
            with launching_ahead(self.behind):
                super().loop()

    def batches(self) -> Iterator[tuple[Any, Any]]:
        size = self.placement.steps_per_call
        if size == 1:
            return super().batches()
        # The first alone: its gradients are recorded.
        starts = [0, *range(1, len(self.steps), size)] if self.steps else []
        calls = [self.steps[a:b] for a, b in itertools.pairwise([*starts, len(self.steps)])]
        return zip(calls, joined(self.plan, self.samples, self.strategy, calls), strict=True)

    def scalars(self, number: Any) -> Any:
        """The scalars of a step, or of each step of a call."""
        if isinstance(number, range):
            return [self.rates.scalars(step) for step in number]
        return super().scalars(number)

    def record(self, number: Any, scalars: Any, result: StepResult) -> None:
        """Write what a step did, or each step of a call."""
        if not isinstance(number, range):
            super().record(number, scalars, result)
            return
        self._writer.divide_time(len(number))
        for step in zip(number, scalars, apart(result), strict=True):
            super().record(*step)

    def read(self, result: StepResult) -> StepNumbers:
        numbers, ids = np.asarray(result.numbers).tolist(), [np.asarray(each) for each in result.ids]
        last = 5 + len(ids) if len(ids) > 1 else 5
        tapped = [table.numpy() for table in result.taps] if self.run_options.taps else []
        return StepNumbers(numbers[:5], numbers[5:last], numbers[last:], ids, tapped)

    def evaluated(self) -> tuple[float, float, int]:
        if self.placement.engine_owns_loop:
            return self.step.evaluate(self.plan, self.eval_samples)
        return super().evaluated()


class _SeveralSteps(SeveralStepsGraph, Step):
    """A step whose graph takes several."""


def _build(spec: TrainSpec, placement: Placement, recording: bool, taps: bool) -> tuple[Any, ...]:
    """(strategy, model, optimizer, step) of a placement."""
    strategy = open_strategy(placement)
    model = build_model(spec, strategy)
    if placement.engine_owns_loop:
        fit = keras_fit.Fit(spec, model, strategy)
        return strategy, model, fit.optimizer, fit
    optimizer = around("optimizer", build_optimizer)(spec.optimizer, model, strategy)
    kind = Step if placement.steps_per_call == 1 else _SeveralSteps
    return strategy, model, optimizer, kind(spec, model, optimizer, strategy, recording, taps)
