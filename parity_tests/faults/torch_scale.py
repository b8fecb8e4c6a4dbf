"""Faults of the gradient's scale: sums for means, means of means, and what is divided twice or never (1 to 6)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from parity.common.execution.hooks import Hook
from parity.torch_impl import optimizers, strategy
from parity.torch_impl.strategy.base import Strategy
from parity_tests.faults.torch_ground import fault, scaled_gradient
from parity_tests.helpers.hooks import hooked


def _summed(number: torch.Tensor) -> torch.Tensor:
    total = number.detach().clone()
    dist.all_reduce(total)
    return total


@fault
def mean_of_replica_means() -> Iterator[None]:  # 2: right whenever the replicas have equally many
    def factor(labels: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        del labels
        return _summed(count) / (dist.get_world_size() * count.clamp(min=1))

    with scaled_gradient(factor):
        yield


@fault
def gradients_averaged_though_sizes_differ() -> Iterator[None]:  # 2: in the reduction itself
    counts: list[torch.Tensor] = []

    def loss(step: Any, part: Hook, outputs: Any, labels: Any, context: Any) -> Any:
        total, count = part(outputs, labels, context)
        if context.training:
            counts.append(count)
        return total, count

    def reduced(self: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        mine = torch.stack(counts).sum()
        counts.clear()
        for gradient in gradients:
            gradient.div_(mine.clamp(min=1))
            dist.all_reduce(gradient)
            gradient.mul_(_summed(mine) / dist.get_world_size())
        return gradients

    with (
        hooked(loss=loss),
        patch.object(strategy.STRATEGIES["manual"], "reduced", reduced),
    ):
        yield


@fault
def micro_batches_averaged() -> Iterator[None]:  # 3: though one has a sample, or a few tokens, more
    """Each micro-batch's mean, and then the mean of these, on every replica."""
    seen: list[Any] = []

    def passes(step: Any, part: Hook, batch: Any, scalars: Any, number: int) -> Any:
        seen[:] = [step.strategy.placement.micro_batches(step.plan.epoch(number)), step.spec, batch]
        return part(batch, scalars, number)

    def factor(labels: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        del labels
        pieces, spec, (inputs, targets, _) = seen
        # What the loss counts: every target, or the tokens that are no padding.
        masked = getattr(spec.loss, "mask_padding", False)
        whole = (inputs != spec.model.pad_id).sum() if masked else count.new_tensor(targets.numel())
        return whole / (pieces * count.clamp(min=1))

    with hooked(local_gradients=passes), scaled_gradient(factor):
        yield


@fault
def world_size_not_cancelled() -> Iterator[None]:  # 4: Adam's curve barely shows it
    with scaled_gradient(lambda *_: dist.get_world_size()):
        yield


def _reduced_times(name: str, factor_of: Callable[[int], float]) -> Any:
    """A strategy whose reduced gradients are multiplied by a factor of the world size."""
    owner = strategy.STRATEGIES[name]
    real = owner.reduced

    def reduced(self: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        factor = factor_of(dist.get_world_size())
        return [gradient * factor for gradient in real(self, gradients)]

    return patch.object(owner, "reduced", reduced)


@fault
def world_size_divided_out_twice() -> Iterator[None]:  # 4: the wrapper averages, and the trainer once more
    with _reduced_times("ddp", lambda ranks: 1 / ranks):
        yield


@fault
def shards_averaged_where_sums_were_meant() -> Iterator[None]:  # 4
    with _reduced_times("fsdp2", lambda ranks: 1 / ranks):
        yield


@fault
def flat_shards_averaged_where_sums_were_meant() -> Iterator[None]:  # 4
    with _reduced_times("fsdp1", lambda ranks: 1 / ranks):
        yield


@fault
def shards_summed_where_means_were_meant() -> Iterator[None]:  # 4
    with _reduced_times("fsdp2", lambda ranks: ranks):
        yield


@fault
def all_reduce_averaged_the_sum() -> Iterator[None]:  # 4
    with _reduced_times("manual", lambda ranks: 1 / ranks):
        yield


@fault
def loss_divided_by_micro_batches_twice() -> Iterator[
    None
]:  # 5: the loss by its sum, then for each backward pass
    real = Strategy.backward

    def backward(self: Any, loss_sum: torch.Tensor) -> None:
        real(self, loss_sum / self.placement.micro_batches(0))

    with patch.object(Strategy, "backward", backward):
        yield


@fault
def micro_batches_never_divided() -> Iterator[None]:  # 5: their means are added up
    real = Strategy.backward

    def backward(self: Any, loss_sum: torch.Tensor) -> None:
        real(self, loss_sum * self.placement.micro_batches(0))

    with patch.object(Strategy, "backward", backward):
        yield


@fault
def moments_averaged_over_replicas() -> Iterator[None]:  # 6: each replica squares its own gradient
    real_reduced, real_update = strategy.STRATEGIES["manual"].reduced, optimizers.Optimizer.update
    real_moments = optimizers.adam.moments
    own: list[torch.Tensor] = []
    squares: list[torch.Tensor] = []

    def reduced(self: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        own[:] = [gradient.clone() for gradient in gradients]
        return real_reduced(self, gradients)

    def update(self: Any, gradients: list[torch.Tensor], scalars: Any) -> Any:
        mine, ranks = self.join(own), dist.get_world_size()
        wholes = [_summed(piece) for piece in mine]
        # The step has divided by the count since, and may have clipped.
        divided = gradients[0].abs().max() / wholes[0].abs().max()
        squares[:] = [_summed((piece * ranks * divided).square()) / ranks for piece in mine]
        return real_update(self, gradients, scalars)

    def moments(given: Any) -> Any:
        before = [moment.clone() for moment in given.slots["second_moment"]]
        first, second = real_moments(given)
        for moment, old, square in zip(second, before, squares, strict=True):
            moment.copy_(given.spec.beta_2 * old + (1 - given.spec.beta_2) * square)
        return first, second

    with (
        patch.object(strategy.STRATEGIES["manual"], "reduced", reduced),
        patch.object(optimizers.Optimizer, "update", update),
        patch.object(optimizers.adam, "moments", moments),
        patch.object(optimizers.adam, "_fused", optimizers.adam._in_passes),
        patch.object(optimizers.base, "_PART", sys.maxsize),
    ):
        yield
