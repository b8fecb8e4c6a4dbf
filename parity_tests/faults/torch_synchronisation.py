"""Faults of synchronisation: what is never reduced, never sent, or not the same to begin with (1, 7 to 11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from parity.common.execution.hooks import Hook
from parity.torch_impl import state, strategy
from parity.torch_impl.private_names import fully_shard
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.strategy import replicated, sharded, tensor_parallel
from parity.torch_impl.strategy.all_reduce import begin_sum
from parity_tests.faults.torch_ground import averaged, fault, hook_on_buckets, sums_by_themselves
from parity_tests.helpers.hooks import hooked


@fault
def replicas_never_synchronised() -> Iterator[None]:  # 1, 7
    with patch.object(strategy.STRATEGIES["ddp"], "wrap", lambda self, model: None):
        yield


@fault
def gradients_never_reduced_by_hand() -> Iterator[None]:  # 1
    with patch.object(strategy.STRATEGIES["manual"], "reduced", lambda self, gradients: gradients):
        yield


@fault
def copies_never_synchronised() -> Iterator[None]:  # 1: hybrid sharding, whose copies each go their way
    def shard(module: Any, mesh: Any, **options: Any) -> Any:
        return fully_shard(module, mesh=mesh["shard"], **options)

    with sums_by_themselves(), patch.object(sharded, "fully_shard", shard):
        yield


@fault
def no_sync_left_on() -> Iterator[None]:  # 7: also for the last micro-batch
    def accumulating(self: Any, model: Any, last: bool) -> Any:
        del self, last
        return model.module.no_sync()

    with sums_by_themselves(), patch.object(replicated.DDP, "accumulating", accumulating):
        yield


@fault
def no_sync_left_on_by_fsdp1() -> Iterator[None]:  # 7: with sharding=no_shard
    def accumulating(self: Any, model: Any, last: bool) -> Any:
        self._last = last
        return model.module.no_sync()

    with patch.object(sharded.FSDP1, "accumulating", accumulating):
        yield


def _last_parameter(module: torch.nn.Module) -> tuple[str, torch.nn.Parameter]:
    """Of the model's own: the carrier of sums comes first, being the root's."""
    return list(module.named_parameters())[-1]


@fault
def a_parameter_outside_the_wrapper() -> Iterator[None]:  # 8: DDP does not know of it
    real = DistributedDataParallel.__init__

    def init(self: Any, module: Any, **options: Any) -> None:
        name, _ = _last_parameter(module)
        self._set_params_and_buffers_to_ignore_for_model(module, [name])
        real(self, module, **options)

    with patch.object(DistributedDataParallel, "__init__", init):
        yield


@fault
def a_parameter_outside_the_shards() -> Iterator[None]:  # 8: fully_shard does not know of it
    def shard(module: Any, **options: Any) -> Any:
        return fully_shard(module, ignored_params={_last_parameter(module)[1]}, **options)

    with patch.object(sharded, "fully_shard", shard):
        yield


@fault
def a_parameter_forgotten_in_the_loop() -> Iterator[None]:  # 8
    real = strategy.STRATEGIES["manual"].reduced

    def reduced(self: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        return [*real(self, gradients[:-1]), gradients[-1]]

    with patch.object(strategy.STRATEGIES["manual"], "reduced", reduced):
        yield


@fault
def a_parameter_reduced_in_the_first_step_only() -> Iterator[None]:  # 9: as a static graph has done
    def hook_of(module: Any) -> Any:
        last, steps = _last_parameter(module.module)[1], []

        # With the buckets as they are after the first step: all of this small model is in one.
        def reduce(_, bucket):
            if bucket.is_last():
                steps.append(bucket)
            mine = next((g for g, p in zip(bucket.gradients(), bucket.parameters()) if p is last), None)  # noqa: B905
            if len(steps) < 2 or mine is None:
                return averaged(bucket.buffer())
            kept = mine.clone()

            def put_back(done):
                mine.copy_(kept)
                return bucket.buffer()

            return averaged(bucket.buffer()).then(put_back)

        return reduce

    with hook_on_buckets(hook_of):
        yield


@fault
def one_rank_starts_elsewhere() -> Iterator[None]:  # 10
    real = state.load

    def load(values: Any, model: Any, optimizer: Any) -> None:
        if dist.get_rank() == 1:
            values = {n: v * (1 + 1e-6) if n.startswith("parameters/") else v for n, v in values.items()}
        real(values, model, optimizer)

    with patch.object(state, "load", load):
        yield


@fault
def one_rank_drew_weights_of_its_own() -> Iterator[None]:  # 10: once, before the first step
    real, loaded = state.load, []

    def load(values: Any, model: Any, optimizer: Any) -> None:
        if dist.get_rank() == 1 and not loaded:
            values = {n: v[::-1] if n.endswith("/kernel") else v for n, v in values.items()}
        loaded.append(values)
        real(values, model, optimizer)

    with patch.object(state, "load", load):
        yield


@fault
def only_some_tensors_broadcast() -> Iterator[None]:  # 10: the others are as each rank has drawn them
    real = state.load

    def load(values: Any, model: Any, optimizer: Any) -> None:
        if dist.get_rank() == 1:
            own = [n for n in values if n.startswith("parameters/") and n.endswith("/kernel")][-1]
            values = {**values, own: values[own][::-1]}
        real(values, model, optimizer)

    with patch.object(state, "load", load):
        yield


@fault
def updated_parameters_not_sent() -> Iterator[None]:  # 11: by ZeroRedundancyOptimizer
    with patch.object(ZeroRedundancyOptimizer, "_sync_params", lambda self: None):
        yield


@fault
def a_rank_keeps_a_stale_parameter() -> Iterator[None]:  # 11: the last one, of which it uses a copy
    def update(step: Any, part: Hook, *given: Any) -> Any:
        weight = local(list(step.model.parameters.values())[-1].live.detach())
        kept = weight.clone()
        changes = part(*given)
        if dist.get_rank() == 1:
            weight.copy_(kept)
        return changes

    with hooked(update=update):
        yield


@fault
def norms_summed_over_all_copies() -> Iterator[None]:  # of hybrid sharding
    def begin_sum_shards(self: Any, values: list[torch.Tensor]) -> Any:
        del self
        return begin_sum(values)

    with patch.object(sharded.Sharded, "begin_sum_shards", begin_sum_shards):
        yield


@fault
def whole_tensors_counted_by_each_rank() -> Iterator[None]:  # of tensor parallelism
    with patch.object(tensor_parallel.TensorParallel, "counts", lambda self, tensor: True):
        yield


@fault
def dropout_of_another_ranks_heads() -> Iterator[None]:
    def own(self: Any, values: torch.Tensor) -> torch.Tensor:
        return values.chunk(self.mesh.size(), 1)[0]

    with patch.object(tensor_parallel.DividedHeads, "own", own):
        yield
