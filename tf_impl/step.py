"""One training step: local gradients -> reduce -> clip -> update -> read out (`Step.take`).

In `reduce` the replicas come together; how they are summed over is up to `strategy/`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from parity.common.execution.step import LocalGradients, Reduced, StepBase, StepResult
from parity.tf_impl import losses
from parity.tf_impl.graphs.steps import StepGraph
from parity.tf_impl.strategy.values import own_variable
from parity.tf_impl.taps import StepTaps


class Step(StepGraph, StepBase):
    """One training step; changes the model and the optimizer in place.

    What is called is a graph of `take`. pieces: how many micro-batches the graph that is being traced cuts a local
    batch into. unrolls: whether they are traced one after another and not as a loop, so that what is made in them
    can be seen.
    """

    losses, step_taps = losses, StepTaps
    pieces, unrolls = 1, False

    def prepare(self) -> None:
        spec, strategy = self.spec, self.strategy
        self._weights = list(self.model.parameters.values())
        self._needs_norm = self.recording or spec.optimizer.clip_global_norm is not None
        # This replica's fingerprint before the step: between processes it travels with what the next step sums.
        self._own: tf.Variable | None = None
        if self.recording and strategy.placement.processes > 1:
            with strategy.native.scope():
                self._own = own_variable((), spec.master_dtype)
        self.open_graph()

    def take(self, batch: Any, scalars: dict[str, tf.Tensor], number: tf.Tensor) -> StepResult:
        """The step: what each replica does, then what all do together."""
        reduced, clipped, norm, ids = self.strategy.native.run(self._replica, args=(batch, scalars, number))
        updated = self.strategy.unpack(reduced.finite)[0]
        changes = self.update(clipped, scalars, updated)
        return self.read_out(reduced, norm, changes, ids)

    def _replica(self, batch: tuple, scalars: dict[str, tf.Tensor], number: tf.Tensor) -> tuple[Any, ...]:
        """(Reduced, clipped gradients, their norm before clipping, sample ids) of one replica."""
        reduced = self.reduce(self.local_gradients(batch, scalars, number), scalars)
        return reduced, *self.clip(reduced), batch[-1]

    def local_gradients(
        self, batch: tuple, scalars: dict[str, tf.Tensor], number: tf.Tensor
    ) -> LocalGradients:
        """Gradients, loss sum and count of a local batch, added up over its micro-batches."""
        passes, scale = self._passes, scalars.get("loss_scale")
        if self.strategy.placement.compile:
            # Each replica's own: XLA cannot compile what the replicas do together.
            passes = tf.function(passes, jit_compile=True, autograph=False)
        if self.pieces == 1:
            return passes(batch, number, scale)

        def add(place: tf.Tensor, totals: LocalGradients) -> tuple[tf.Tensor, LocalGradients]:
            made = passes(self._piece(batch, place), number, scale)
            return place + 1, tf.nest.map_structure(tf.add, totals, made)

        zero = tf.zeros([], self.spec.master_dtype)
        zeros = [tf.zeros(weight.shape, weight.dtype) for weight in self._weights]
        turns = (
            tf.constant(0),
            LocalGradients(zeros, zero, zero, tapped=() if self.taps is None else self.taps.zeros),
        )
        if self.unrolls:
            # What is made within a loop cannot be seen outside.
            for _ in range(self.pieces):
                turns = add(*turns)
            return turns[1]
        # A loop, and one turn at a time, so that only one micro-batch needs memory.
        return tf.while_loop(lambda place, _: place < self.pieces, add, turns, parallel_iterations=1)[1]

    def _passes(self, batch: tuple, number: tf.Tensor, scale: tf.Tensor | None) -> LocalGradients:
        """Of one micro-batch: gradients of the loss sum times `scale`, loss sum and count of this replica's samples."""
        inputs, targets, ids = batch
        context = self.context(inputs, ids, number)
        with tf.GradientTape() as tape:
            loss_sum, count = self.loss(self.forward(inputs, context), targets, context)
            scaled = loss_sum if scale is None else loss_sum * scale
        outputs = [] if self.taps is None else self.taps.watched(context)
        # Of an embedding it is sparse, with an entry for each use of a row.
        wanted, zero = [*self._weights, *outputs], tf.UnconnectedGradients.ZERO
        found = list(map(tf.convert_to_tensor, tape.gradient(scaled, wanted, unconnected_gradients=zero)))
        gradients, of_outputs = found[: len(self._weights)], found[len(self._weights) :]
        for gradient, weight in zip(gradients, self._weights, strict=True):
            gradient.set_shape(weight.shape)  # a dense one that was sparse has lost it
        tapped = () if self.taps is None else self.taps.activations(context, of_outputs, scale)
        return LocalGradients(gradients, loss_sum, count, tapped=tapped)

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

    def clip(self, reduced: Reduced) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The gradients as the spec limits them, and their norm before that, where something needs it."""
        gradients = reduced.gradients
        norm = tf.linalg.global_norm(gradients) if self._needs_norm else tf.zeros_like(reduced.count)
        return self.optimizer.clip(gradients, norm), norm

    def update(self, clipped: Any, scalars: dict[str, tf.Tensor], updated: Any) -> list[tf.Tensor]:
        """Change weights and slots, unless the loss scale was too large; the changes of the weights."""
        if "loss_scale" in scalars:
            scalars = {**scalars, "updated": updated}
        return self.optimizer.update(clipped, scalars)

    def read_out(self, reduced: Reduced, norm: Any, changes: list[tf.Tensor], ids: Any) -> StepResult:
        """What the record is to hold of the step."""
        unpack, prints = self.strategy.unpack, self.fingerprints() if self.recording else []
        numbers = [unpack(each)[0] for each in (reduced.loss_sum, reduced.count, norm)]
        norms = [tf.zeros_like(numbers[0])] * 2
        if self.recording:
            norms = [tf.sqrt(2 * prints[0]), tf.linalg.global_norm(changes)]
            norms += prints if len(prints) > 1 else []
        self.remember_fingerprints(prints)
        numbers += norms + [unpack(each)[0] for each in reduced.compared]
        gradients = [unpack(gradient)[0] for gradient in reduced.gradients]
        taps = () if self.taps is None else unpack(reduced.taps)
        return StepResult(tf.stack(numbers), unpack(ids), gradients, unpack(reduced.finite)[0], taps)

    def evaluate(self, batch: Any) -> tuple[float, float, int]:
        """(loss sum, count, correct) over a batch distributed to the replicas, in inference mode."""
        weights = self._weights

        def replica(inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor) -> tuple:
            context = self.context(inputs, ids)
            outputs = self.forward(inputs, context)
            loss_sum, count = self.loss(outputs, targets, context)
            correct = losses.correct(self.spec.loss, outputs, targets, context)
            loss_sum, count, correct = self.strategy.sum([loss_sum, count, correct])
            means = self.penalized(Reduced(weights, loss_sum, count, []), weights)
            return means.loss_sum, count, correct

        # Run eagerly: it is one batch, and tracing would cost more than it saves.
        totals = self.strategy.native.run(replica, args=batch)
        loss_sum, count, correct = (float(self.strategy.unpack(total)[0]) for total in totals)
        return loss_sum, count, int(correct)

    def micro_batches(self, batch: Any, number: int) -> list[Any]:
        """The local batch cut as the placement says. Every replica has as many; some may be empty."""
        self.pieces = self.strategy.placement.micro_batches(self.plan.epoch(number))
        return [self._piece(batch, tf.constant(place)) for place in range(self.pieces)]

    def _piece(self, batch: Any, place: tf.Tensor) -> tuple[tf.Tensor, ...]:
        rows, more = (part(tf.shape(batch[-1])[0], self.pieces) for part in (tf.math.floordiv, tf.math.mod))
        start = place * rows + tf.minimum(place, more)
        stop = start + rows + tf.cast(place < more, tf.int32)
        return tuple(tensor[start:stop] for tensor in batch)
