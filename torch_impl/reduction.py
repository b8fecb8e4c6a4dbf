"""The reduction of a step: loss, count and gradients summed over the replicas, then divided once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parity.common.execution.step import LocalGradients, Reduced
from parity.torch_impl.strategy.all_reduce import norm_of


class Reduction:
    """The part of a `Step` in which the ranks come together; how they are summed over is up to `strategy/`."""

    # This rank's fingerprint before the step, where one is known already.
    _own: list[Tensor]

    def reduce(self, local: LocalGradients, scalars: dict[str, float]) -> Reduced:
        """The global batch's mean gradients: summed over the replicas, divided once by the global count."""
        reduced = self.divide(self.sum_over_replicas(local), scalars)
        taps: Any = ()
        if self.taps is not None:
            gradients = self.optimizer.apart(reduced.gradients)
            taps = [self.taps.values(local, gradients, scalars.get("loss_scale"))]
        return reduced._replace(finite=self.finite(reduced.gradients, scalars), taps=taps)

    def sum_over_replicas(self, local: LocalGradients) -> Reduced:
        """The sums over the replicas of loss sums and counts, and of gradients, divided by `averages_over`."""
        pieces = self.optimizer.join(self.strategy.reduced(local.gradients))
        # Begun by `_passes` in step.py, beside the backward pass or with its gradients.
        loss_sum, count, *compared = local.pending_sums()
        return Reduced(pieces, loss_sum, count, [*compared, *self._own[: len(compared)]])

    def divide(self, sums: Reduced, scalars: dict[str, float]) -> Reduced:
        """The mean gradients from the sums, and what the loss's penalties on the weights add."""
        # The wrappers average over the ranks; the law asks for the sum over the global count.
        divisor = sums.count * scalars.get("loss_scale", 1.0)
        pieces = list(torch._foreach_mul(sums.gradients, self.strategy.averages_over / divisor))
        means, optimizer = sums._replace(gradients=pieces), self.optimizer
        if not (self.spec.loss.l1 or self.spec.loss.l2):
            return means
        means = self.penalized(
            means._replace(gradients=optimizer.apart(pieces)), optimizer.apart(optimizer.weights)
        )
        return means._replace(gradients=optimizer.join(means.gradients))

    def penalized(self, means: Reduced, weights: list[Any]) -> Reduced:
        """The global loss sum and the mean gradients, not in pieces, with the loss's penalties on the weights."""
        loss, strategy = self.spec.loss, self.strategy
        gradients, size = list(means.gradients), torch.zeros_like(means.loss_sum)
        for place, (weight, tensor) in enumerate(zip(weights, self.model.parameters.values(), strict=True)):
            if loss.penalize == "all" or len(tensor.shape) >= 2:
                if strategy.counts(tensor):
                    size += loss.l1 * weight.abs().sum() + loss.l2 * weight.square().sum()
                gradients[place] = gradients[place] + loss.l1 * weight.sign() + 2 * loss.l2 * weight
        loss_sum = means.loss_sum + means.count * strategy.sum_shards([size])[0]
        return means._replace(gradients=gradients, loss_sum=loss_sum)

    def finite(self, gradients: list[Tensor], scalars: dict[str, float]) -> bool:
        """Whether all gradients are finite, on every rank alike; asked only where the loss is scaled."""
        if "loss_scale" not in scalars:
            return True
        wrong = torch.stack([(~gradient.isfinite()).sum() for gradient in gradients]).sum()
        return not float(self.strategy.sum_shards([wrong.to(gradients[0].dtype)])[0])

    @torch.no_grad()
    def fingerprint(self) -> list[Tensor]:
        """The norm of this rank's parameters, by which equal replicas are told; none where none are compared."""
        if self._compares and not self._own:
            self._own = [norm_of(self.optimizer.weights)]
        return self._own

    def compared(self) -> list[float]:
        """The sum of `fingerprint` over all replicas as they are, and this one's; none where there is none."""
        own = self.fingerprint()
        return [float(norm) for norm in (*self.strategy.sum(own), *own)] if own else []
