"""The reduction of a step: loss, count and gradients summed over the replicas, then divided once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from parity.common.execution.step import LocalGradients, Reduced


class Reduction:
    """The part of a `Step` in which the replicas come together; how they are summed over is up to `strategy/`."""

    # This replica's fingerprint before the step; it travels with what the next step sums.
    _own: tf.Variable | None

    def reduce(self, local: LocalGradients, scalars: dict[str, tf.Tensor]) -> Reduced:
        """The global batch's mean gradients: summed over the replicas, divided once by the global count."""
        reduced = self.divide(self.sum_over_replicas(local), scalars)
        taps: Any = ()
        if self.taps is not None:
            taps = self.taps.values(local, reduced.gradients, scalars.get("loss_scale"))
        return reduced._replace(finite=self.finite(reduced.gradients, scalars), taps=taps)

    def sum_over_replicas(self, local: LocalGradients) -> Reduced:
        """The sums over the replicas of gradients, loss sums and counts; with the loss sum travels the fingerprint."""
        own, loss_sum = self.fingerprint(), local.loss_sum
        if own:
            loss_sum = tf.stack([loss_sum, *own])
        *gradients, loss_sum, count = self.strategy.sum([*local.gradients, loss_sum, local.count])
        compared: list[tf.Tensor] = []
        if own:
            loss_sum, *compared = [*tf.unstack(loss_sum), *own]
        return Reduced(gradients, loss_sum, count, compared)

    def divide(self, sums: Reduced, scalars: dict[str, tf.Tensor]) -> Reduced:
        """The mean gradients from the sums, and what the loss's penalties on the weights add."""
        scale = scalars.get("loss_scale")
        divisor = sums.count if scale is None else sums.count * scale
        gradients = [gradient / divisor for gradient in sums.gradients]
        return self.penalized(sums._replace(gradients=gradients), self._weights)

    def penalized(self, means: Reduced, weights: list[Any]) -> Reduced:
        """The global loss sum and the mean gradients with the loss's penalties on the weights."""
        loss, (gradients, loss_sum, count, *_) = self.spec.loss, means
        if not (loss.l1 or loss.l2):
            return means
        gradients = list(gradients)
        for place, weight in enumerate(weights):
            if loss.penalize == "all" or weight.shape.rank >= 2:
                size = loss.l1 * tf.reduce_sum(tf.abs(weight)) + loss.l2 * tf.reduce_sum(tf.square(weight))
                loss_sum += count * size
                gradients[place] += loss.l1 * tf.sign(weight) + 2 * loss.l2 * weight
        return means._replace(gradients=gradients, loss_sum=loss_sum)

    def finite(self, gradients: list[tf.Tensor], scalars: dict[str, tf.Tensor]) -> tf.Tensor:
        """Whether all gradients are finite; asked only where the loss is scaled."""
        if "loss_scale" not in scalars:
            return tf.constant(True)
        return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

    def fingerprint(self) -> list[tf.Tensor]:
        """That of this replica before the step, by which equal ones are told; none in one process alone."""
        return [] if self._own is None else [self._own.read_value()]

    def compared(self) -> list[float]:
        """The sum of `fingerprint` over all replicas as they are, and this one's; none where there is none."""

        def summed() -> list[tf.Tensor]:
            own = self.fingerprint()
            return [*self.strategy.sum(own), *own]

        found = [] if self._own is None else self.strategy.native.run(summed)
        return [float(self.strategy.unpack(norm)[0]) for norm in found]
