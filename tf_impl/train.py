"""train(spec, placement, out_dir) -> run record."""

from __future__ import annotations

import functools
from pathlib import Path

from common import reference
from common.data import sources
from common.data.plan import BatchPlan
from common.record import RecordWriter, claim_folder
from common.spec import Placement, TrainSpec
from common.state import initial_state, save_state
from tf_impl import data, runtime, state, taps
from tf_impl.model import build_model
from tf_impl.optimizers import build_optimizer
from tf_impl.step import build_step, evaluate
from tf_impl.strategy import open_strategy


def train(spec: TrainSpec, placement: Placement, out_dir: Path, tensorboard: bool = False) -> Path:
    """Train a spec on a placement and write its run record; returns the record's folder.

    All replicas live in this process.

    Raises:
        ParityError: anything that can be foreseen, as one line.
    """
    spec = spec.resolved()
    runtime.configure(placement)
    samples, eval_samples = sources.load_for(spec)
    plan = BatchPlan.of(spec, placement)
    claim_folder(out_dir)
    # Neither the order of samples nor the last step is part of what was traced.
    strategy, model, optimizer, step = _build(
        spec, placement.model_copy(update={"sample_order_seed": None, "stop_at_step": None})
    )
    state.load(initial_state(spec), model, optimizer)
    save_state(out_dir / "initial.safetensors", state.export(model, optimizer, 0))
    steps = range(placement.steps_of(spec.steps))
    facts = {
        "versions": runtime.versions(),
        "devices": runtime.device_names(placement),
        "threads": runtime.thread_counts(),
        "data_digest": sources.data_digest(spec.data),
    }
    board = runtime.ScalarWriter(out_dir / "tensorboard") if tensorboard else None
    writer = RecordWriter(out_dir, spec, placement, strategy.local_replicas, facts, board)

    rates = reference.RateKeeper(spec)
    writer.start_clock()
    for number, batch in zip(steps, data.batches(plan, samples, strategy, steps), strict=True):
        scalars = rates.scalars(number)
        result = step(batch, scalars, number)
        numbers = result.numbers.numpy().tolist()
        rates.observe(number, *numbers[:2])
        writer.step(number, scalars["learning_rate"], numbers, [ids.numpy() for ids in result.ids])
        if number == 0:
            save_state(
                out_dir / "first_gradients.safetensors", taps.reduced_gradients(model, result.gradients)
            )
            writer.skip_time()

    save_state(out_dir / "final.safetensors", state.export(model, optimizer, len(steps)))
    with optimizer.averaged():
        totals = [evaluate(spec, model, strategy, b) for b in data.chunks(plan, eval_samples, strategy)]
    writer.finish(tuple(map(sum, zip((0.0, 0, 0), *totals, strict=True))))
    strategy.close(model)
    return out_dir


@functools.lru_cache(maxsize=2)
def _build(spec: TrainSpec, placement: Placement) -> tuple:
    """Tracing costs seconds, so the next run of the same spec in this process uses it again."""
    strategy = open_strategy(placement)
    model = build_model(spec, strategy)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    step = build_step(spec, model, optimizer, strategy, recording=placement.recording == "full")
    return strategy, model, optimizer, step
