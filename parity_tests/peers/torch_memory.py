"""What a step really keeps and holds, counted on the tensors themselves."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.spec import Placement, TrainSpec
from parity.common.state.canonical import initial_state
from parity.torch_impl import data, runtime, state
from parity.torch_impl.layers.products import low_of, set_low
from parity.torch_impl.model import build_model
from parity.torch_impl.optimizers import build_optimizer
from parity.torch_impl.step import Step
from parity.torch_impl.strategy import open_strategy
from parity.torch_impl.strategy.blocks import Checkpointed, wrap_blocks
from parity_tests.peers import Arrays


class Live(TorchDispatchMode):
    """Counts the bytes of all storages that operations make, from when they are made until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._storages: dict[int, weakref.ref] = {}

    @property
    def now(self) -> int:
        """StepTrace up anew each time: a sharding strategy makes storages smaller and larger."""
        storages = [reference() for reference in self._storages.values()]
        return sum(storage.nbytes() for storage in storages if storage is not None)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for thing in tree_iter(result):
            if isinstance(thing, Tensor):
                self.count(thing)
        self.peak = max(self.peak, self.now)
        return result

    def count(self, tensor: Tensor) -> None:
        """Take a tensor's storage into account, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            # Dropped when it dies, since its address may be another's then.
            self._storages[key] = weakref.ref(storage, lambda _: self._storages.pop(key, None))


def measure(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Bytes of a step on one replica; facts: spec, a resolved TrainSpec; scalars, of its first
    step; accumulation; checkpoint.

    parameters, slots, buffers: of the tensors. saved: by the forward pass of one micro-batch for its
    backward pass, without parameters and buffers. passes: the most of both, with the batch. step: the
    most of a whole step, with all there is.
    """
    del arrays
    spec = TrainSpec.parse(facts["spec"])
    accumulation = facts.get("accumulation", 1)
    placement = Placement.parse({"framework": "torch", "strategy": "single", "accumulation": accumulation})
    strategy = open_strategy(placement)
    # As on the GPUs that the adviser is asked about: only on a CPU are tensors joined.
    strategy.joins = False
    model = build_model(spec, strategy)
    # So, too, are kernels of low types used, which some CPUs round otherwise.
    if (low := low_of(spec, gpu=False)) is not None:
        set_low(model.module, replace(low, native=True))
    if facts.get("checkpoint"):
        wrap_blocks(model.module, Checkpointed)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    state.load(initial_state(spec), model, optimizer)
    step = Step(spec, model, optimizer, strategy, recording=False)
    batch = _batch(spec, placement, strategy)
    held = [*model.module.parameters(), *model.module.buffers()]
    slots = [part for parts in optimizer.slots.values() for part in parts.values()]
    piece = step.micro_batches(batch, 0)[0]

    saved: dict[int, int] = {}
    own = {each.untyped_storage()._cdata for each in held}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_sum, _ = step.pass_forward(piece, 0)
    kept = sum(saved.values())
    del loss_sum

    passes = _live([*held, *batch])
    with passes:
        loss_sum, count = step.pass_forward(piece, 0)
        loss_sum.backward()
    del loss_sum, count
    for parameter in model.module.parameters():
        parameter.grad = None

    whole = _live([*held, *slots, *batch])
    with whole:
        step(batch, facts["scalars"], 0)
    found = {
        "parameters": _bytes(list(model.module.parameters())),
        "buffers": _bytes(list(model.module.buffers())),
        "slots": _bytes(slots),
        "saved": kept,
        "passes": passes.peak - _bytes(held),
        "step": whole.peak,
    }
    return {name: np.array(value) for name, value in found.items()}


def rank(spec: TrainSpec, placement: Placement, scalars: dict[str, float], folder: Path) -> None:
    """The most that this rank holds in the second step of a placement; written to `rank_N.json`."""
    runtime.configure(placement)
    live = Live()
    strategy = open_strategy(placement)
    with live:
        model = build_model(spec, strategy)
        optimizer = build_optimizer(spec.optimizer, model, strategy)
        state.load(initial_state(spec), model, optimizer)
        step = Step(spec, model, optimizer, strategy, recording=False)
        batch = _batch(spec, placement, strategy)
        for tensor in batch:
            live.count(tensor)
        step(batch, scalars, 0)
        gc.collect()
        live.peak = live.now
        step(batch, scalars, 1)
    (folder / f"rank_{strategy.rank}.json").write_text(json.dumps(live.peak))
    strategy.close(model)


def _batch(spec: TrainSpec, placement: Placement, strategy: Any) -> Any:
    samples, _ = sources.load_for(spec)
    plan = BatchPlan.of(spec, placement)
    return next(iter(data.batches(plan, samples, strategy, range(1))))


def _live(tensors: list[Tensor]) -> Live:
    gc.collect()
    live = Live()
    for tensor in tensors:
        live.count(tensor)
    return live


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)
