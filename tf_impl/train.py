"""train(spec, placement, out_dir) -> run record."""

from __future__ import annotations

import functools
from pathlib import Path

from common import reference
from common.data import sources
from common.data.plan import BatchPlan
from common.launch.place import find_folder, place_of, starts_ranks
from common.launch.ranks import arrive, run_ranks
from common.record import RecordWriter, claim_folder
from common.spec import Placement, TrainSpec
from common.spec.run import check_run
from common.state import initial_state, save_state
from tf_impl import data, engines, runtime, state, taps
from tf_impl.model import build_model
from tf_impl.optimizers import build_optimizer
from tf_impl.step import StepResult, build_step, evaluate
from tf_impl.strategy import open_strategy
from tf_impl.strategy.cluster import lost_peers

_PRELOAD = ["tf_impl.train", "sklearn.datasets"]


def train(spec: TrainSpec, placement: Placement, out_dir: Path, tensorboard: bool = False) -> Path:
    """Train a spec on a placement and write its run record; returns the record's folder.

    Replicas that share a process live in this one; where there are several processes, it starts them,
    or is one of them under a launcher.

    Raises:
        ParityError: anything that can be foreseen, as one line.
    """
    spec = spec.resolved()
    check_run(spec, placement)
    engines.check(spec, placement)
    runtime.configure(placement)
    arguments = (spec, placement, out_dir, tensorboard)
    if placement.processes == 1 or not starts_ranks(placement):
        _train_rank(*arguments)
        return out_dir
    claim_folder(out_dir)
    run_ranks(
        "tf_impl.train:_train_rank",
        arguments,
        placement.processes,
        out_dir / "logs",
        # A fork of a process that has used a GPU cannot.
        [] if runtime.uses_gpu(placement) else _PRELOAD,
        placement.timeout_seconds,
    )
    return out_dir


def _train_rank(spec: TrainSpec, placement: Placement, out_dir: Path, tensorboard: bool) -> None:
    runtime.configure(placement)
    arrive()
    with lost_peers(placement):
        run = _Run(spec, placement, out_dir, tensorboard)
        if engines.owns_loop(placement):
            run.step.train(run.plan, run.samples, run.steps, run.rates.scalars, run.record)
        else:
            _loop(run)
        run.finish()


def _loop(run: _Run) -> None:
    """The loop, where no engine brings its own."""
    batches = data.batches(run.plan, run.samples, run.strategy, run.steps)
    for number, batch in zip(run.steps, batches, strict=True):
        scalars = run.rates.scalars(number)
        run.record(number, scalars, run.step(batch, scalars, number))


class _Run:
    """One process's training but for the loop: all that is built before, recorded within and written after."""

    def __init__(self, spec: TrainSpec, placement: Placement, out_dir: Path, tensorboard: bool) -> None:
        self.spec, self.placement, self.out_dir = spec, placement, out_dir
        self._primary = primary = place_of(placement).rank == 0
        runtime.allow_tf32(spec.allows_tf32)
        self.samples, self._eval_samples = sources.load_for(spec)
        self.plan = BatchPlan.of(spec, placement)
        claims = placement.processes == 1 or not starts_ranks(placement)
        if primary and claims:
            claim_folder(out_dir)
        # Neither the order of samples nor the last step is part of what was traced.
        self.strategy, self.model, self.optimizer, self.step = _build(
            spec, placement.model_copy(update={"sample_order_seed": None, "stop_at_step": None})
        )
        self.strategy.barrier()
        if claims:
            find_folder(out_dir)
        state.load(initial_state(spec, placement.sample_order_seed), self.model, self.optimizer)
        begun = state.export(self.model, self.optimizer, 0)
        if primary:
            save_state(out_dir / "initial.safetensors", begun)
        self.steps = range(placement.steps_of(spec.steps))
        facts = {
            "versions": runtime.versions(),
            "devices": runtime.device_names(placement),
            "threads": runtime.thread_counts(),
            "data_digest": sources.data_digest(spec.data) if primary else None,
        }
        board = runtime.ScalarWriter(out_dir / "tensorboard") if tensorboard and primary else None
        replicas = self.strategy.recorded_replicas
        self._writer = RecordWriter(out_dir, spec, placement, replicas, facts, board)
        self.rates = reference.RateKeeper(spec)
        self._writer.start_clock()

    def record(self, number: int, scalars: dict[str, float], result: StepResult) -> None:
        """Write what a step did. Every process must call it."""
        numbers = result.numbers.numpy().tolist()
        self.rates.observe(number, *numbers[:2], bool(result.updated))
        received, scale = [ids.numpy() for ids in result.ids], scalars.get("loss_scale", 1.0)
        self._writer.step(number, scalars["learning_rate"], numbers, received, scale)
        if self.placement.digests:
            self._writer.digests(number, taps.parameter_digests(self.model, self.strategy))
        if result.updated and self.rates.updates == 1:
            gradients = taps.reduced_gradients(self.model, result.gradients)
            if self._primary:
                save_state(self.out_dir / "first_gradients.safetensors", gradients)
            self._writer.skip_time()

    def finish(self) -> None:
        """Write the final state and what the evaluation says."""
        model, optimizer, strategy = self.model, self.optimizer, self.strategy
        self._writer.memory(strategy.rank, taps.memory(model, optimizer))
        final = state.export(model, optimizer, len(self.steps))
        if self._primary:
            save_state(self.out_dir / "final.safetensors", final)
        self._writer.finish(self._evaluated())
        strategy.close(model)

    def _evaluated(self) -> tuple[float, float, int]:
        if engines.owns_loop(self.placement):
            return self.step.evaluate(self.plan, self._eval_samples)
        with self.optimizer.averaged():
            chunks = data.chunks(self.plan, self._eval_samples, self.strategy)
            totals = [evaluate(self.spec, self.model, self.strategy, chunk) for chunk in chunks]
        return tuple(map(sum, zip((0.0, 0, 0), *totals, strict=True)))


@functools.lru_cache(maxsize=2)
def _build(spec: TrainSpec, placement: Placement) -> tuple:
    """Tracing costs seconds, so the next run of the same spec in this process uses it again."""
    strategy = open_strategy(placement)
    model = build_model(spec, strategy)
    if engines.owns_loop(placement):
        return strategy, model, *engines.build(spec, model, strategy)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    step = build_step(spec, model, optimizer, strategy, recording=placement.recording == "full")
    return strategy, model, optimizer, step
