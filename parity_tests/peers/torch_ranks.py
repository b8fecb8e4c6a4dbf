"""Ranks that look at what a strategy really does, and write it down as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.reference import StepScalars
from parity.common.spec import Placement, TrainSpec
from parity.common.state.canonical import initial_state
from parity.torch_impl import data, runtime, state
from parity.torch_impl.layers import attention
from parity.torch_impl.model import build_model
from parity.torch_impl.optimizers import build_optimizer
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.step import Step
from parity.torch_impl.strategy import open_strategy, replicated, sharded

STEPS = 2


def observe(spec_data: dict[str, Any], placement_data: dict[str, Any], folder: Path) -> None:
    """Train two steps, evaluate with other weights, and write folder/rank_N.json.

    buckets: elements of each bucket that DDP reduced in the last step. views: whether gradients lie in
    buckets. flags: options as DDP has them. units: the options of each that FSDP2 was asked for.
    whole_before_backward: bytes of whole parameters that FSDP holds between the passes. passes: how often
    an attention ran in the last step. evaluations: losses with the weights, and with their doubles.
    """
    spec, placement = TrainSpec.parse(spec_data).resolved(), Placement.parse(placement_data)
    runtime.configure(placement)
    facts: dict[str, Any] = {"units": []}
    with _spied(facts):
        strategy = open_strategy(placement)
        model = build_model(spec, strategy)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    state.load(initial_state(spec), model, optimizer)
    _spy_on(strategy, model, facts)
    step = Step(spec, model, optimizer, strategy, recording=True)
    samples, eval_samples = sources.load_for(spec)
    plan, rates = BatchPlan.of(spec, placement), StepScalars(spec)
    for number, batch in enumerate(data.batches(plan, samples, strategy, range(STEPS))):
        facts |= {"buckets": [], "passes": 0}
        step(batch, rates.scalars(number), number)
    trained = dict(facts)
    evaluations = []
    for factor in (1, 2):
        with torch.no_grad():
            for tensor in model.parameters.values():
                local(tensor.live.detach()).mul_(factor)
        sums = [step.evaluate(chunk) for chunk in data.chunks(plan, eval_samples, strategy)]
        evaluations.append(sum(loss for loss, _, _ in sums))
    (folder / f"rank_{strategy.rank}.json").write_text(json.dumps({**trained, "evaluations": evaluations}))
    strategy.close(model)


def _spied(facts: dict[str, Any]) -> Any:
    """Note the options with which units of FSDP are made."""
    real = sharded.fully_shard

    def noting(module: Any, **options: Any) -> Any:
        kinds = {name: type(value).__name__ for name, value in options.items() if name == "offload_policy"}
        facts["units"].append({"reshard": options["reshard_after_forward"], **kinds})
        return real(module, **options)

    return patch.object(sharded, "fully_shard", noting)


def _spy_on(strategy: Any, model: Any, facts: dict[str, Any]) -> None:
    if isinstance(strategy, replicated.DDP):
        names = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view", "bucket_bytes_cap")
        facts["flags"] = {name: getattr(model.module, name) for name in names}

        # DDP inspects the hook's annotations and does not accept postponed ones: none at all, then.
        def count(_, bucket):
            facts["buckets"].append(bucket.buffer().numel())
            done = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True).get_future()
            return done.then(lambda future: future.value()[0])

        model.module.register_comm_hook(None, count)
    reduced, backward, attend = strategy.reduced, strategy.backward, attention.Attention.attend

    def look_at_gradients(gradients: list[Tensor]) -> list[Tensor]:
        facts["views"] = all(g.untyped_storage().nbytes() > g.nbytes for g in gradients)
        return reduced(gradients)

    def look_at_parameters(loss_sum: Tensor) -> None:
        facts["whole_before_backward"] = _whole(model)
        backward(loss_sum)

    def counted(self: Any, *arguments: Any) -> Tensor:
        facts["passes"] += 1
        return attend(self, *arguments)

    strategy.reduced, strategy.backward = look_at_gradients, look_at_parameters
    attention.Attention.attend = counted


def _whole(model: Any) -> int:
    """Bytes of whole parameters: FSDP2 puts them in place of the shards, FSDP1 keeps them in its flat ones."""
    units = [unit for unit in FullyShardedDataParallel.fsdp_modules(model.module) if unit._handle is not None]
    if units:
        wholes = [unit._handle.flat_param._full_param_padded for unit in units]
        return sum(whole.untyped_storage().nbytes() for whole in wholes)
    lives = [tensor.live for tensor in model.parameters.values()]
    return sum(live.nbytes for live in lives if not isinstance(live, DTensor))
