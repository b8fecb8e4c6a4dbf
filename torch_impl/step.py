"""One training step, readable on one screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from common.data.plan import BatchPlan
from common.spec import TrainSpec
from common.spec.losses import LossBase
from torch_impl import losses
from torch_impl.model import Model, local
from torch_impl.optimizers import Optimizer
from torch_impl.strategy import Strategy


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global.
    ids: the sample ids of each replica that this process speaks for.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    updated: whether the weights were updated; float16 skips a step whose gradients overflowed.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]
    updated: Any = True


class Step:
    """One training step; changes the model and the optimizer in place.

    Split where an engine with a loop of its own takes over: it calls `loss` and `finish` itself.
    """

    def __init__(
        self, spec: TrainSpec, model: Model, optimizer: Optimizer, strategy: Strategy, recording: bool
    ) -> None:
        self.spec, self.model, self.optimizer, self.strategy = spec, model, optimizer, strategy
        self._plan = BatchPlan.of(spec, strategy.placement)
        self._parameters = [tensor.live for tensor in model.parameters.values()]
        self._weights = [local(parameter.detach()) for parameter in self._parameters]
        self._recording = recording
        self._needs_norm = recording or spec.optimizer.clip_global_norm is not None

    def __call__(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        sums, scale = [], scalars.get("loss_scale", 1.0)
        pieces = self.micro_batches(batch, number)
        for place, piece in enumerate(pieces, start=1):
            with self.strategy.accumulating(self.model, last=place == len(pieces)):
                loss_sum, count = self.loss(piece, number)
                self.strategy.backward(loss_sum if scale == 1 else loss_sum * scale)
            sums.append(torch.stack([loss_sum.detach(), count]))
        return self.finish(*torch.stack(sums).sum(0), batch[-1], scalars)

    def micro_batches(self, batch: Any, number: int) -> list[Any]:
        """The local batch cut as the placement says. Every rank has as many; some may be empty."""
        count = self.strategy.placement.micro_batches(self._plan.epoch(number))
        if count == 1:
            return [batch]
        return list(zip(*(torch.tensor_split(tensor, count) for tensor in batch), strict=True))

    def loss(self, batch: Any, number: int) -> tuple[Tensor, Tensor]:
        """Sum and count of the losses of this rank's samples."""
        inputs, targets, ids = batch
        context = self.model.context(True, inputs, ids.to(inputs.device), number)
        outputs = self.model(inputs, context)
        return losses.loss_sum_and_count(self.spec.loss, outputs, targets, context)

    def finish(self, loss_sum: Tensor, count: Tensor, ids: Any, scalars: dict[str, float]) -> StepResult:
        """Reduce what the backward passes left, and update; sum, count and ids are this rank's."""
        strategy, optimizer, parameters = self.strategy, self.optimizer, self._parameters
        loss_sum, count = strategy.sum([loss_sum, count])
        gradients = strategy.reduced([local(parameter.grad) for parameter in parameters])
        # The wrappers average over the ranks; the law asks for the sum over the global count.
        divisor = count * scalars.get("loss_scale", 1.0)
        gradients = list(torch._foreach_mul(gradients, strategy.averages_over / divisor))
        updated = "loss_scale" not in scalars or self._finite(gradients)
        loss_sum, gradients = _penalized(
            self.spec.loss, self.model, self._weights, loss_sum, count, gradients, strategy
        )
        norm = strategy.norms(gradients)[0] if self._needs_norm else torch.zeros_like(count)
        if updated:
            changes = optimizer.update(optimizer.clip(gradients, norm), scalars)
        else:
            changes = [torch.zeros_like(weight) for weight in self._weights]
        norms = [torch.zeros_like(count)] * 2
        if self._recording:
            norms = strategy.norms(self._weights, changes)
        for parameter in parameters:
            parameter.grad = None
        numbers = torch.stack([loss_sum, count, norm, *norms])
        return StepResult(numbers, strategy.by_replica(ids), gradients, updated)

    def _finite(self, gradients: list[Tensor]) -> bool:
        """Whether the reduced gradients are finite everywhere, on every rank alike."""
        wrong = torch.stack([(~gradient.isfinite()).sum() for gradient in gradients]).sum()
        return not float(self.strategy.sum_shards([wrong.to(gradients[0].dtype)])[0])


def build_step(
    spec: TrainSpec, model: Model, optimizer: Optimizer, strategy: Strategy, recording: bool
) -> Callable[[Any, Any, int], StepResult]:
    """step(batch, scalars, number) -> StepResult; changes the model and the optimizer in place."""
    return Step(spec, model, optimizer, strategy, recording)


@torch.no_grad()
def _penalized(
    loss: LossBase,
    model: Model,
    weights: list[Tensor],
    loss_sum: Tensor,
    count: Tensor,
    gradients: list[Tensor],
    strategy: Strategy,
) -> tuple[Tensor, list[Tensor]]:
    """The global loss sum and the mean gradients with the loss's penalties on the weights."""
    if not (loss.l1 or loss.l2):
        return loss_sum, gradients
    penalized, size = list(gradients), torch.zeros_like(loss_sum)
    for place, (weight, tensor) in enumerate(zip(weights, model.parameters.values(), strict=True)):
        if loss.penalize == "all" or len(tensor.shape) >= 2:
            if strategy.counts(tensor):
                size += loss.l1 * weight.abs().sum() + loss.l2 * weight.square().sum()
            penalized[place] = gradients[place] + loss.l1 * weight.sign() + 2 * loss.l2 * weight
    return loss_sum + count * strategy.sum_shards([size])[0], penalized


@torch.no_grad()
def evaluate(spec: TrainSpec, model: Model, strategy: Strategy, batch: Any) -> tuple[float, float, int]:
    """(loss sum, count, correct) over a batch distributed to the replicas, in inference mode."""
    inputs, targets, ids = batch
    weights = [local(tensor.live) for tensor in model.parameters.values()]
    context = model.context(False, inputs, ids.to(inputs.device))
    outputs = model(inputs, context)
    loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
    correct = losses.correct(spec.loss, outputs, targets, context)
    loss_sum, count, correct = strategy.sum([loss_sum, count, correct])
    loss_sum, _ = _penalized(spec.loss, model, weights, loss_sum, count, weights, strategy)
    strategy.reshard(model)
    return float(loss_sum), float(count), int(correct)
