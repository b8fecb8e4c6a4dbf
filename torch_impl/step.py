"""One training step, readable on one screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from common.spec import TrainSpec
from common.spec.losses import LossBase
from torch_impl import losses
from torch_impl.model import Model, local
from torch_impl.optimizers import Optimizer
from torch_impl.strategy import Strategy


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global.
    ids: the sample ids of each local replica.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]


def build_step(
    spec: TrainSpec, model: Model, optimizer: Optimizer, strategy: Strategy, recording: bool
) -> Callable[[Any, Any, int], StepResult]:
    """step(batch, scalars, number) -> StepResult; changes the model and the optimizer in place."""
    parameters = [tensor.live for tensor in model.parameters.values()]
    weights = [local(parameter.detach()) for parameter in parameters]
    needs_norm = recording or spec.optimizer.clip_global_norm is not None

    def step(batch: Any, scalars: Any, number: int) -> StepResult:
        inputs, targets, ids = batch
        context = model.context(True, inputs, ids.to(inputs.device), number)
        outputs = model(inputs, context)
        loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
        loss_sum.backward()
        loss_sum, count = strategy.sum([loss_sum.detach(), count])
        # The wrappers average over the ranks; the law asks for the sum over the global count.
        gradients = [local(parameter.grad) for parameter in parameters]
        gradients = list(torch._foreach_mul(gradients, strategy.placement.replicas / count))
        loss_sum, gradients = _penalized(spec.loss, weights, loss_sum, count, gradients, strategy)
        norm = strategy.norms(gradients)[0] if needs_norm else torch.zeros_like(count)
        changes = optimizer.update(optimizer.clip(gradients, norm), scalars)
        norms = strategy.norms(weights, changes) if recording else [torch.zeros_like(count)] * 2
        for parameter in parameters:
            parameter.grad = None
        return StepResult(torch.stack([loss_sum, count, norm, *norms]), [ids], gradients)

    return step


@torch.no_grad()
def _penalized(
    loss: LossBase,
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
    for place, weight in enumerate(weights):
        if loss.penalize == "all" or weight.ndim >= 2:
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
    loss_sum, _ = _penalized(spec.loss, weights, loss_sum, count, weights, strategy)
    strategy.reshard(model)
    return float(loss_sum), float(count), int(correct)
