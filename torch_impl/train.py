"""train(spec, placement, out_dir) -> run record."""

from __future__ import annotations

import os
from pathlib import Path

from common import reference
from common.data import sources
from common.data.plan import BatchPlan
from common.errors import RunError
from common.launch.process import pin_to_cores
from common.launch.ranks import run_ranks
from common.record import RecordWriter, claim_folder
from common.spec import Placement, TrainSpec
from common.state import initial_state, save_state
from torch_impl import data, runtime, state, taps
from torch_impl.model import build_model
from torch_impl.optimizers import build_optimizer
from torch_impl.step import build_step, evaluate
from torch_impl.strategy import open_strategy

_PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch_impl.train",
    "sklearn.datasets",
]


def train(spec: TrainSpec, placement: Placement, out_dir: Path, tensorboard: bool = False) -> Path:
    """Train a spec on a placement and write its run record; returns the record's folder.

    Starts the ranks itself, or is one of them under torchrun.

    Raises:
        ParityError: anything that can be foreseen, as one line.
    """
    spec = spec.resolved()
    runtime.configure(placement)
    arguments = (spec, placement, out_dir, tensorboard)
    if placement.launcher == "torchrun":
        world_size = os.environ.get("WORLD_SIZE", "unset")
        if world_size != str(placement.replicas):
            raise RunError(f"replicas is {placement.replicas}, but torchrun's WORLD_SIZE is {world_size}")
        _train_rank(*arguments)
    else:
        claim_folder(out_dir)
        run_ranks("torch_impl.train:_train_rank", arguments, placement.replicas, out_dir / "logs", _PRELOAD)
    return out_dir


def _train_rank(spec: TrainSpec, placement: Placement, out_dir: Path, tensorboard: bool) -> None:
    rank = int(os.environ.get("LOCAL_RANK", 0))
    pinned = pin_to_cores(placement, range(rank, rank + 1))
    runtime.configure(placement)
    strategy = open_strategy(placement)
    primary = strategy.rank == 0
    if placement.launcher == "torchrun":
        if primary:
            claim_folder(out_dir)
        strategy.barrier()
    samples, eval_samples = sources.load_for(spec)
    plan = BatchPlan.of(spec, placement)
    model = build_model(spec, strategy)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    state.load(initial_state(spec), model, optimizer)
    begun = state.export(model, optimizer, 0)
    if primary:
        save_state(out_dir / "initial.safetensors", begun)
    step = build_step(spec, model, optimizer, strategy, recording=placement.recording == "full")
    steps = range(placement.steps_of(spec.steps))
    facts = {
        "versions": runtime.versions(),
        "devices": runtime.device_names(placement),
        "threads": {**runtime.thread_counts(), "pinned": int(pinned)},
        "data_digest": sources.data_digest(spec.data) if primary else None,
    }
    board = runtime.ScalarWriter(out_dir / "tensorboard") if tensorboard and primary else None
    writer = RecordWriter(out_dir, spec, placement, strategy.local_replicas, facts, board)

    rates = reference.RateKeeper(spec)
    writer.start_clock()
    for number, batch in zip(steps, data.batches(plan, samples, strategy, steps), strict=True):
        scalars = rates.scalars(number)
        result = step(batch, scalars, number)
        numbers = result.numbers.tolist()
        rates.observe(number, *numbers[:2])
        writer.step(number, scalars["learning_rate"], numbers, [ids.numpy() for ids in result.ids])
        if number == 0:
            gradients = taps.reduced_gradients(model, result.gradients)
            if primary:
                save_state(out_dir / "first_gradients.safetensors", gradients)
            writer.skip_time()

    final = state.export(model, optimizer, len(steps))
    if primary:
        save_state(out_dir / "final.safetensors", final)
    with optimizer.averaged():
        totals = [evaluate(spec, model, strategy, b) for b in data.chunks(plan, eval_samples, strategy)]
    writer.finish(tuple(map(sum, zip((0.0, 0, 0), *totals, strict=True))))
    strategy.close(model)
