"""One training step, readable on one screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from common import reference
from common.data.plan import BatchPlan
from common.spec import TrainSpec
from common.spec.losses import LossBase
from tf_impl import losses
from tf_impl.model import Model
from tf_impl.optimizers import Optimizer
from tf_impl.strategy import Strategy


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global.
    ids: the sample ids of each local replica.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    updated: whether the weights were updated; float16 skips a step whose gradients overflowed.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]
    updated: Any = True


class Step:
    """One training step; changes the model and the optimizer in place."""

    def __init__(
        self, spec: TrainSpec, model: Model, optimizer: Optimizer, strategy: Strategy, recording: bool
    ) -> None:
        self.spec, self.model, self.optimizer, self.strategy = spec, model, optimizer, strategy
        self._plan = BatchPlan.of(spec, strategy.placement)
        self._weights = list(model.parameters.values())
        self._recording = recording
        self._needs_norm = recording or spec.optimizer.clip_global_norm is not None
        self._traced: dict[int, Callable[..., tuple]] = {}

    def __call__(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        count = self.strategy.placement.micro_batches(self._plan.epoch(number))
        if count not in self._traced:
            self._traced[count] = self._trace(count)
        values = tf.constant(list(scalars.values()), self.spec.master_dtype)
        numbers, ids, gradients, updated = self._traced[count](batch, values, tf.constant(number, tf.int64))
        return StepResult(numbers, ids, gradients, "loss_scale" not in scalars or bool(updated))

    def _trace(self, micro_batches: int) -> Callable[..., tuple]:
        """The step as a graph, for one number of micro-batches."""
        names = reference.RateKeeper(self.spec).scalars(0).keys()

        def replica(
            inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor, number: tf.Tensor, scale: tf.Tensor | None
        ) -> tuple:
            batch = inputs, targets, ids
            return (*self.reduced(self._accumulated(batch, number, micro_batches, scale), scale), ids)

        @tf.function(
            input_signature=[
                _any_batch(self.spec, self.strategy),
                tf.TensorSpec([len(names)], self.spec.master_dtype),
                tf.TensorSpec([], tf.int64),
            ]
        )
        def step(batch: Any, scalars: tf.Tensor, number: tf.Tensor) -> tuple:
            unpack = self.strategy.unpack
            named = dict(zip(names, tf.unstack(scalars), strict=True))
            arguments = (*batch, number, named.get("loss_scale"))
            numbers, gradients, clipped, updated, ids = self.strategy.native.run(replica, args=arguments)
            updated = unpack(updated)[0]
            if "loss_scale" in named:
                named["updated"] = updated
            changes = self.optimizer.update(clipped, named)
            numbers = [unpack(number)[0] for number in numbers]
            norms = [tf.zeros_like(numbers[0])] * 2
            if self._recording:
                weights = [weight.read_value() for weight in self._weights]
                norms = [tf.linalg.global_norm(weights), tf.linalg.global_norm(changes)]
            return tf.stack([*numbers, *norms]), unpack(ids), [unpack(g)[0] for g in gradients], updated

        return step

    def _accumulated(
        self, batch: tuple, number: tf.Tensor, micro_batches: int, scale: tf.Tensor | None
    ) -> tuple:
        """Gradients, loss sum and count of a local batch, added up over its micro-batches."""
        if micro_batches == 1:
            return self.gradients(batch, number, scale)
        rows, more = (part(tf.shape(batch[-1])[0], micro_batches) for part in (tf.math.floordiv, tf.math.mod))

        def add(place: tf.Tensor, *totals: tf.Tensor) -> tuple:
            start = place * rows + tf.minimum(place, more)
            stop = start + rows + tf.cast(place < more, tf.int32)
            piece = self.gradients(tuple(tensor[start:stop] for tensor in batch), number, scale)
            return (place + 1, *(total + part for total, part in zip(totals, piece, strict=True)))

        zero = tf.zeros([], self.spec.master_dtype)
        zeros = (*(tf.zeros(weight.shape, weight.dtype) for weight in self._weights), zero, zero)
        # A loop, and one turn at a time, so that only one micro-batch needs memory.
        _, *totals = tf.while_loop(
            lambda place, *_: place < micro_batches, add, (tf.constant(0), *zeros), parallel_iterations=1
        )
        return tuple(totals)

    def gradients(self, batch: tuple, number: tf.Tensor, scale: tf.Tensor | None = None) -> tuple:
        """(*gradients of the loss sum times `scale`, loss sum, count) of this replica's samples."""
        inputs, targets, ids = batch
        context = self.model.context(True, inputs, ids, number)
        with tf.GradientTape() as tape:
            outputs = self.model(inputs, context)
            loss_sum, count = losses.loss_sum_and_count(self.spec.loss, outputs, targets, context)
            scaled = loss_sum if scale is None else loss_sum * scale
        # Of an embedding it is sparse, with an entry for each use of a row.
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(scaled, self._weights)]
        return (*gradients, loss_sum, count)

    def reduced(self, sums: tuple, scale: tf.Tensor | None = None) -> tuple:
        """((loss sum, count, gradient norm), gradients, clipped gradients, whether finite), all global."""
        *gradients, loss_sum, count = self.strategy.sum(list(sums))
        divisor = count if scale is None else count * scale
        gradients = [gradient / divisor for gradient in gradients]
        finite = tf.constant(True)
        if scale is not None:
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        loss_sum, gradients = _penalized(self.spec.loss, self._weights, loss_sum, count, gradients)
        norm = tf.linalg.global_norm(gradients) if self._needs_norm else tf.zeros_like(count)
        return (loss_sum, count, norm), gradients, self.optimizer.clip(gradients, norm), finite


def build_step(
    spec: TrainSpec, model: Model, optimizer: Optimizer, strategy: Strategy, recording: bool
) -> Callable[[Any, Any, int], StepResult]:
    """step(batch, scalars, number) -> StepResult; changes the model and the optimizer in place."""
    return Step(spec, model, optimizer, strategy, recording)


def _penalized(
    loss: LossBase, weights: list, loss_sum: tf.Tensor, count: tf.Tensor, gradients: list[tf.Tensor]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The global loss sum and the mean gradients with the loss's penalties on the weights."""
    if not (loss.l1 or loss.l2):
        return loss_sum, gradients
    penalized = list(gradients)
    for place, weight in enumerate(weights):
        if loss.penalize == "all" or weight.shape.rank >= 2:
            size = loss.l1 * tf.reduce_sum(tf.abs(weight)) + loss.l2 * tf.reduce_sum(tf.square(weight))
            loss_sum += count * size
            penalized[place] += loss.l1 * tf.sign(weight) + 2 * loss.l2 * weight
    return loss_sum, penalized


def _any_batch(spec: TrainSpec, strategy: Strategy) -> Any:
    """Type of a distributed batch of any size, so that the tail of an epoch is not traced anew."""

    def of_size(size: int) -> Any:
        def local(context: tf.distribute.ValueContext) -> tuple:
            del context
            inputs = tf.zeros([size, *spec.model.input_shape], spec.input_dtype)
            return inputs, tf.zeros([size, *spec.target_shape], spec.target_dtype), tf.zeros([size], tf.int64)

        return [tf.type_spec_from_value(value) for value in strategy.distribute(local)]

    pairs = zip(of_size(1), of_size(2), strict=True)
    return tuple(one.most_specific_common_supertype([two]) for one, two in pairs)


def evaluate(spec: TrainSpec, model: Model, strategy: Strategy, batch: Any) -> tuple[float, float, int]:
    """(loss sum, count, correct) over a batch distributed to the replicas, in inference mode."""

    weights = list(model.parameters.values())

    def replica(inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor) -> tuple:
        context = model.context(False, inputs, ids)
        outputs = model(inputs, context)
        loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
        correct = losses.correct(spec.loss, outputs, targets, context)
        loss_sum, count, correct = strategy.sum([loss_sum, count, correct])
        return _penalized(spec.loss, weights, loss_sum, count, weights)[0], count, correct

    # Run eagerly: it is one batch, and tracing would cost more than it saves.
    loss_sum, count, correct = (
        float(strategy.unpack(total)[0]) for total in strategy.native.run(replica, args=batch)
    )
    return loss_sum, count, int(correct)
