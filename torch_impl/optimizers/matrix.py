"""Adafactor, Muon and LAMB; formulas as in `common/reference/optimizers/matrix.py`.

They look at whole tensors, of which a rank may hold a shard: tensors are gathered, norms reduced.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from parity.common.spec.optimizers import Adafactor, Lamb, Muon
from parity.torch_impl.optimizers.adam import moments
from parity.torch_impl.optimizers.base import Update, register


@register(Adafactor)
def adafactor(given: Update) -> list[Tensor]:
    """The gradient over the root of a second moment of rank one; the step is relative to the weight."""
    spec, scalars = given.spec, given.scalars
    second = _second_moments(given)
    updates = [g / v.sqrt() for g, v in zip(given.gradients, second, strict=True)]
    weights = given.decayed if spec.scaled_by == "decayed" else given.weights
    changes = []
    for update, weight_size, size in zip(updates, _rms(given, weights), _rms(given, updates), strict=True):
        step = scalars["relative_step"] * weight_size.clamp(min=spec.epsilon_2)
        changes.append(update * (-step / (size / spec.clip_threshold).clamp(min=1)))
    return changes


def _rms(given: Update, tensors: list[Tensor]) -> list[Tensor]:
    counts = [math.prod(tensor.shape) for tensor in given.tensors]
    norms = given.strategy.tensor_norms(tensors, given.tensors)
    return [norm / count**0.5 for norm, count in zip(norms, counts, strict=True)]


def _second_moments(given: Update) -> list[Tensor]:
    """This rank's parts of the second moments; sets their slots."""
    spec, gradients, share = given.spec, given.gradients, given.scalars["newest_share"]
    epsilon = torch.finfo(gradients[0].dtype).eps if spec.epsilon_1 is None else spec.epsilon_1
    added, floor = (epsilon, 0.0) if spec.epsilon_form == "add" else (0.0, epsilon)

    def average(slot: Tensor, newest: Tensor) -> Tensor:
        return slot.mul_(1 - share).add_(newest, alpha=share)

    if "second_moment" in given.slots:
        slots = given.slots["second_moment"]
        pairs = zip(slots, gradients, strict=True)
        return [average(slot, g.square() + added).clamp(min=floor**2) for slot, g in pairs]
    found = []
    slots = zip(given.slots["row_moment"], given.slots["column_moment"], strict=True)
    for tensor, gradient, (rows, columns) in zip(given.tensors, gradients, slots, strict=True):
        square = tensor.whole(gradient).square() + added
        row_axis, column_axis = spec.axes(tuple(square.shape))
        row = average(rows, square.mean(column_axis))
        column = average(columns, square.mean(row_axis))
        mean = row.mean(row_axis, keepdim=True).clamp(min=floor)
        second = (row / mean).unsqueeze(column_axis) * column.unsqueeze(row_axis)
        found.append(tensor.part(second.clamp(min=floor**2)))
    return found


@register(Muon)
def muon(given: Update) -> list[Tensor]:
    """The momentum, made orthogonal."""
    spec, gradients, buffers = given.spec, given.gradients, given.slots["momentum_buffer"]
    fresh = 1.0 if spec.momentum_form == "sum" else 1 - spec.momentum
    torch._foreach_mul_(buffers, spec.momentum)
    torch._foreach_add_(buffers, gradients, alpha=fresh)
    directions = buffers
    if spec.nesterov:
        directions = torch._foreach_mul(gradients, fresh)
        torch._foreach_add_(directions, buffers, alpha=spec.momentum)
    changes = []
    for tensor, direction in zip(given.tensors, directions, strict=True):
        whole = tensor.whole(direction)
        step = given.scalars["learning_rate"] * spec.scale(tuple(whole.shape))
        changes.append(tensor.part(-step * _orthogonal(spec, whole)))
    return changes


def _orthogonal(spec: Muon, matrix: Tensor) -> Tensor:
    """The matrix with its singular values moved towards 1."""
    a, b, c = spec.newton_schulz
    rows, columns = matrix.shape
    norm = torch.linalg.vector_norm(matrix)
    norm = norm + spec.norm_epsilon if spec.norm_form == "add" else norm.clamp(min=spec.norm_epsilon)
    x = (matrix / norm).T if rows > columns else matrix / norm
    for _ in range(spec.newton_schulz_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if rows > columns else x


@register(Lamb)
def lamb(given: Update) -> list[Tensor]:
    """Adam's direction with the norm of the weight."""
    spec, scalars = given.spec, given.scalars
    first, second = moments(given)
    root = torch._foreach_sqrt(second)
    torch._foreach_div_(root, scalars["second_correction"])
    torch._foreach_add_(root, spec.epsilon)
    updates = list(torch._foreach_div(first, scalars["first_correction"]))
    torch._foreach_div_(updates, root)
    if spec.weight_decay_mode == "update":
        torch._foreach_add_(updates, given.weights, alpha=spec.weight_decay)
    changes = []
    norms = (given.strategy.tensor_norms(tensors, given.tensors) for tensors in (given.decayed, updates))
    for update, weight_norm, norm in zip(updates, *norms, strict=True):
        ratio = torch.where(torch.minimum(weight_norm, norm) > 0, weight_norm / norm, 1.0)
        changes.append(update * (-scalars["learning_rate"] * ratio))
    return changes
