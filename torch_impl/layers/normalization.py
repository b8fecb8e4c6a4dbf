"""Normalisations."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.registry import Contextual, NodeLayer, register
from parity.torch_impl.private_names import all_gather


class _SynchronisedNorm(torch.autograd.Function):
    """(x - mean) / sqrt(variance + epsilon) with the statistics of all ranks' rows.

    One message forward and one backward. Each rank sends its count, mean and sum of squared
    deviations; they are combined pairwise-exactly (Chan, Golub, LeVeque: "Updating formulae and a
    pairwise algorithm for computing sample variances", 1979), which does not cancel as
    E[x^2] - E[x]^2 does. Backward: dx = (dy - mean(dy) - xhat * mean(dy * xhat)) / sqrt(...).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float, ranks: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x (rows, channels) -> normalised x, and the mean, sum of squared deviations, and row count."""
        rows = x.shape[0]
        # A rank without rows contributes zeros, not the 0/0 of an empty mean.
        mean = x.sum(0) / max(rows, 1)
        squares = (x - mean).square_().sum(0)
        count = x.new_tensor(rows)
        if ranks > 1:
            mine = torch.cat([mean, squares, count[None]])
            everyone = x.new_empty(ranks * len(mine))
            all_gather(everyone, mine)
            means, all_squares, counts = everyone.view(ranks, -1).split([len(mean), len(mean), 1], dim=1)
            count = counts.sum()
            mean = (means * counts).sum(0) / count
            squares = all_squares.sum(0) + ((means - mean).square() * counts).sum(0)
        scale = torch.rsqrt(squares / count.clamp(min=1) + epsilon)
        normalised = (x - mean).mul_(scale)
        ctx.save_for_backward(normalised, scale, count)
        ctx.ranks = ranks
        ctx.mark_non_differentiable(mean, squares, count)
        return normalised, mean, squares, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        normalised, scale, count = ctx.saved_tensors
        sums = torch.stack([gradient.sum(0), (gradient * normalised).sum(0)])
        if ctx.ranks > 1:
            dist.all_reduce(sums)
        sums = sums / count.clamp(min=1)
        return (gradient - sums[0]).addcmul_(normalised, sums[1], value=-1).mul_(scale), None, None


class _Normalisation(NodeLayer):
    """A norm with gamma and beta; they are None where the spec has none."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.spec = node.spec
        for name in ("gamma", "beta"):
            if not hasattr(self, name):
                self.register_parameter(name, None)


@register(spec.BatchNorm)
class BatchNorm(Contextual, _Normalisation):
    """Batch norm over the rows of all replicas, or of this one. nn.SyncBatchNorm refuses CPU tensors."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        if not (context.training and self.spec.uses_batch):
            scale = torch.rsqrt(self.moving_variance + self.spec.epsilon)
            return self._scaled((x - self.moving_mean) * scale).to(x.dtype)
        alone = self.spec.statistics == "per_replica" or not dist.is_initialized()
        ranks = 1 if alone else dist.get_world_size()
        rows = x.reshape(-1, x.shape[-1])
        # In float64 it would cost the proof two digits: the kernel sums in another way than the ranks do together.
        if ranks == 1 and len(rows) > 1 and x.dtype != torch.float64:
            return self._native(x, remember=not context.recomputing)
        # Under autocast x may be low; the statistics are not, as those of nn.SyncBatchNorm.
        wide = rows.to(self.moving_mean.dtype)
        normalised, mean, squares, count = _SynchronisedNorm.apply(wide, self.spec.epsilon, ranks)
        if not context.recomputing:
            self._remember(mean, squares, count)
        return self._scaled(normalised).view(x.shape).to(x.dtype)

    def _native(self, x: Tensor, remember: bool) -> Tensor:
        """By the framework's own kernel, which knows of no other replica."""
        # As images with channels last, whatever it is: other layouts would be copied.
        images = x.reshape(len(x), -1, 1, x.shape[-1]) if x.ndim > 2 else x[None, :, None]
        spec, moving = self.spec, (self.moving_mean, self.moving_variance)
        unbiased = spec.running_variance == "unbiased"
        if not (remember and unbiased):
            # All of the new, none of the old: the batch's own. Also where they are computed again, since a
            # backward pass must find as many tensors saved as the first time.
            moving = torch.zeros_like(moving[0]), torch.zeros_like(moving[1])
        momentum = 1 - spec.decay if unbiased else 1.0
        y = F.batch_norm(images.movedim(-1, 1), *moving, self.gamma, self.beta, True, momentum, spec.epsilon)
        if remember and not unbiased:
            mean, variance = moving
            count = x.numel() // x.shape[-1]
            for kept, batch in (
                (self.moving_mean, mean),
                (self.moving_variance, variance * ((count - 1) / count)),
            ):
                kept.copy_(kept * spec.decay + batch * (1 - spec.decay))
        return y.movedim(1, -1).reshape(x.shape)

    def _scaled(self, y: Tensor) -> Tensor:
        if self.gamma is not None and self.beta is not None:
            return torch.addcmul(self.beta, y, self.gamma)
        if self.gamma is not None:
            return y * self.gamma
        return y if self.beta is None else y + self.beta

    @torch.no_grad()
    def _remember(self, mean: Tensor, squares: Tensor, count: Tensor) -> None:
        divisor = count - 1 if self.spec.running_variance == "unbiased" else count
        # An empty batch leaves the moving statistics as they are.
        # A bool times a Python float would be float32, whatever the run's precision.
        weight = (1 - self.spec.decay) * (count > 0).to(count.dtype)
        for moving, batch in (
            (self.moving_mean, mean),
            (self.moving_variance, squares / divisor.clamp(min=1)),
        ):
            moving.copy_(moving * (1 - weight) + batch * weight)


@register(spec.LayerNorm)
class LayerNorm(_Normalisation):
    """Over the last axes."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[x.ndim - self.spec.axes :], self.gamma, self.beta, self.spec.epsilon)


@register(spec.RMSNorm)
class RMSNorm(_Normalisation):
    """Over the last axes, without a mean."""

    def forward(self, x: Tensor) -> Tensor:
        epsilon = None if self.spec.epsilon == "machine" else self.spec.epsilon
        return F.rms_norm(x, x.shape[x.ndim - self.spec.axes :], self.gamma, epsilon)


@register(spec.GroupNorm, spec.InstanceNorm)
class GroupNorm(_Normalisation):
    """Over all axes but the groups of channels."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        alone = isinstance(node.spec, spec.InstanceNorm)
        self.groups = node.input_shape[-1] if alone else node.spec.groups

    def forward(self, x: Tensor) -> Tensor:
        # The operation's gradient fails where it is given a beta without a gamma (torch 2.13).
        beta = None if self.gamma is None else self.beta
        y = torch.group_norm(x.movedim(-1, 1), self.groups, self.gamma, beta, self.spec.epsilon)
        y = y.movedim(1, -1)
        return y + self.beta if self.gamma is None and self.beta is not None else y
