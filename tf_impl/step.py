"""One training step, readable on one screen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from parity.common import reference
from parity.common.data.plan import BatchPlan
from parity.common.spec import TrainSpec
from parity.common.spec.losses import LossBase
from parity.tf_impl import losses
from parity.tf_impl.model import Model
from parity.tf_impl.optimizers import Optimizer
from parity.tf_impl.strategy import Strategy
from parity.tf_impl.taps import StepTaps


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global. Then, by which replicas are
        compared, fingerprints of several local ones after the step, and of several processes what
        `Step.compared` gave before it.
    ids: the sample ids of each local replica.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    updated: whether the weights were updated; float16 skips a step whose gradients overflowed.
    taps: of each local replica, [names, 2]; empty where nothing is tapped.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]
    updated: Any = True
    taps: Any = ()


class Step:
    """One training step; changes the model and the optimizer in place."""

    def __init__(
        self,
        spec: TrainSpec,
        model: Model,
        optimizer: Optimizer,
        strategy: Strategy,
        recording: bool,
        taps: bool = False,
    ) -> None:
        self.spec, self.model, self.optimizer, self.strategy = spec, model, optimizer, strategy
        self._plan = BatchPlan.of(spec, strategy.placement)
        self._weights = list(model.parameters.values())
        self._recording = recording
        self._needs_norm = recording or spec.optimizer.clip_global_norm is not None
        # Between processes a replica's fingerprint travels with what the next step sums.
        self._own: tf.Variable | None = None
        if recording and strategy.placement.processes > 1:
            with strategy.native.scope():
                reading = tf.VariableSynchronization.ON_READ
                first = tf.VariableAggregation.ONLY_FIRST_REPLICA
                zero = tf.zeros([], spec.master_dtype)
                self._own = tf.Variable(zero, trainable=False, synchronization=reading, aggregation=first)
        self.taps = StepTaps(spec, model, strategy) if taps else None
        self._names = list(reference.StepScalars(spec).scalars(0))
        scalars = tf.TensorSpec([len(self._names)], spec.master_dtype)
        self.signature = [
            *_local_batch(spec) * len(strategy.local_replicas),
            scalars,
            tf.TensorSpec([], tf.int64),
        ]
        self._traced: dict[int, Callable[..., tuple]] = {}
        # What looks into a step, while it is traced: `parity.tf_impl.probe.Probe`; and what was traced with it.
        self.probe: Any = None
        self.probed: dict[tuple[int, bool], Any] = {}

    def __call__(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        count = self.strategy.placement.micro_batches(self._plan.epoch(number))
        if count not in self._traced:
            self._traced[count] = self._trace(count)
        values = tf.constant([*scalars.values()], self.spec.master_dtype)
        place = tf.constant(number, tf.int64)
        numbers, ids, gradients, updated, taps = self._traced[count](*self._flat(batch), values, place)
        return StepResult(numbers, ids, gradients, "loss_scale" not in scalars or bool(updated), taps)

    def _flat(self, batch: Any) -> list[tf.Tensor]:
        """The tensors of a distributed batch, one local replica after another.

        TensorFlow takes 0.9 ms of Python to call a graph with values of several replicas, 0.2 ms with tensors.
        """
        return list(itertools.chain(*zip(*map(self.strategy.unpack, batch), strict=True)))

    def _trace(self, micro_batches: int) -> Callable[..., tuple]:
        """The step as a graph, for one number of micro-batches and batches of any size."""
        # Called as it is: to find again which graph suits the arguments costs as much as a small step.
        return tf.function(self._step(micro_batches), self.signature, autograph=False).get_concrete_function()

    def _step(self, micro_batches: int) -> Callable[..., tuple]:
        """step(*tensors of `_flat`, scalars, number), inside a graph."""
        if self._own is not None:
            self._remember(self._fingerprints())

        def replica(
            inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor, number: tf.Tensor, scale: tf.Tensor | None
        ) -> tuple:
            sums = self._accumulated((inputs, targets, ids), number, micro_batches, scale)
            activations, sums = ((), sums) if self.taps is None else (sums[0], tuple(sums[1:]))
            if self.probe is not None:
                self.probe.local(sums[:-2])
                self.probe.lost(*sums[-2:])
            numbers, gradients, clipped, finite = self.reduced(sums, scale)
            if self.probe is not None:
                clipped = self.probe.clipped(clipped)
            taps = () if self.taps is None else self.taps.values(activations, sums[:-2], gradients, scale)
            return numbers, gradients, clipped, finite, ids, taps

        def step(*tensors: tf.Tensor) -> tuple:
            *flat, scalars, number = tensors
            batch, unpack = self._regrouped(flat), self.strategy.unpack
            named = dict(zip(self._names, tf.unstack(scalars), strict=True))
            arguments = (*batch, number, named.get("loss_scale"))
            numbers, gradients, clipped, updated, ids, taps = self.strategy.native.run(
                replica, args=arguments
            )
            updated = unpack(updated)[0]
            if "loss_scale" in named:
                named["updated"] = updated
            changes = self.optimizer.update(clipped, named)
            numbers = [unpack(number)[0] for number in numbers]
            norms = [tf.zeros_like(numbers[0])] * 2
            if self._recording:
                prints = self._fingerprints()
                norms = [tf.sqrt(2 * prints[0]), tf.linalg.global_norm(changes)]
                norms += prints if len(prints) > 1 else []
            if self._own is not None:
                self._remember(prints)
            taps = () if self.taps is None else unpack(taps)
            numbers[3:3] = norms
            return tf.stack(numbers), unpack(ids), [unpack(g)[0] for g in gradients], updated, taps

        return step

    def _fingerprints(self) -> list[tf.Tensor]:
        """Half the squared norm of each local replica's parameters, computed on its own device."""
        found = []
        for copies in zip(*map(self.strategy.unpack, self._weights), strict=True):
            with tf.device(copies[0].device):
                found.append(tf.add_n([tf.nn.l2_loss(copy.value()) for copy in copies]))
        return found

    def _remember(self, prints: list[tf.Tensor]) -> None:
        for variable, own in zip(self.strategy.unpack(self._own), prints, strict=True):
            variable.assign(own)

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

    def _regrouped(self, flat: list[tf.Tensor]) -> Any:
        """The distributed batch of `_flat`, inside a graph."""
        first, size = self.strategy.local_replicas.start, len(_local_batch(self.spec))

        def local(context: tf.distribute.ValueContext) -> tuple[tf.Tensor, ...]:
            start = (context.replica_id_in_sync_group - first) * size
            return tuple(flat[start : start + size])

        return self.strategy.distribute(local)

    def _accumulated(
        self, batch: tuple, number: tf.Tensor, micro_batches: int, scale: tf.Tensor | None
    ) -> tuple:
        """Gradients, loss sum and count of a local batch, added up over its micro-batches."""
        gradients = self.gradients
        if self.strategy.placement.compile:
            # Each replica's own: XLA cannot compile what the replicas do together.
            gradients = tf.function(gradients, jit_compile=True, autograph=False)
        if micro_batches == 1:
            return gradients(batch, number, scale)
        rows, more = (part(tf.shape(batch[-1])[0], micro_batches) for part in (tf.math.floordiv, tf.math.mod))

        def add(place: tf.Tensor, *totals: tf.Tensor) -> tuple:
            start = place * rows + tf.minimum(place, more)
            stop = start + rows + tf.cast(place < more, tf.int32)
            piece = gradients(tuple(tensor[start:stop] for tensor in batch), number, scale)
            return (place + 1, *(total + part for total, part in zip(totals, piece, strict=True)))

        zero = tf.zeros([], self.spec.master_dtype)
        zeros = (*(tf.zeros(weight.shape, weight.dtype) for weight in self._weights), zero, zero)
        if self.taps is not None:
            zeros = (self.taps.zeros, *zeros)
        if self.probe is not None:
            # What is made within a loop cannot be seen outside.
            turns = (tf.constant(0), *zeros)
            for _ in range(micro_batches):
                turns = add(*turns)
            return turns[1:]
        # A loop, and one turn at a time, so that only one micro-batch needs memory.
        _, *totals = tf.while_loop(
            lambda place, *_: place < micro_batches, add, (tf.constant(0), *zeros), parallel_iterations=1
        )
        return tuple(totals)

    def gradients(self, batch: tuple, number: tf.Tensor, scale: tf.Tensor | None = None) -> tuple:
        """(*gradients of the loss sum times `scale`, loss sum, count) of this replica's samples.

        Where the step is tapped, the fingerprints of its activations come first.
        """
        inputs, targets, ids = batch
        context = self.model.context(True, inputs, ids, number)
        if self.taps is not None:
            context = self.taps.opened(context)
        if self.probe is not None:
            context = self.probe.opened(context, inputs, scale)
        with tf.GradientTape() as tape:
            outputs = self.model(inputs, context)
            loss_sum, count = losses.loss_sum_and_count(self.spec.loss, outputs, targets, context)
            scaled = loss_sum if scale is None else loss_sum * scale
        outputs = [] if self.taps is None else self.taps.watched(context)
        # Of an embedding it is sparse, with an entry for each use of a row.
        wanted, zero = [*self._weights, *outputs], tf.UnconnectedGradients.ZERO
        found = list(map(tf.convert_to_tensor, tape.gradient(scaled, wanted, unconnected_gradients=zero)))
        gradients, of_outputs = found[: len(self._weights)], found[len(self._weights) :]
        for gradient, weight in zip(gradients, self._weights, strict=True):
            gradient.set_shape(weight.shape)  # a dense one that was sparse has lost it
        if self.taps is None:
            return (*gradients, loss_sum, count)
        return (self.taps.activations(context, of_outputs, scale), *gradients, loss_sum, count)

    def reduced(self, sums: tuple, scale: tf.Tensor | None = None) -> tuple:
        """((loss sum, count, gradient norm), gradients, clipped gradients, whether finite), all global.

        With the loss sum travels what replicas are compared by; it ends the numbers, as in `compared`.
        """
        *gradients, loss_sum, count = sums
        own = self.fingerprint()
        if own:
            loss_sum = tf.stack([loss_sum, *own])
        *gradients, loss_sum, count = self.strategy.sum([*gradients, loss_sum, count])
        compared = []
        if own:
            loss_sum, *compared = [*tf.unstack(loss_sum), *own]
        if self.probe is not None:
            loss_sum, count = self.probe.total(loss_sum, count)
        divisor = count if scale is None else count * scale
        gradients = [gradient / divisor for gradient in gradients]
        loss_sum, gradients = _penalized(self.spec.loss, self._weights, loss_sum, count, gradients)
        if self.probe is not None:
            gradients = self.probe.reduced(gradients)
        finite = tf.constant(True)
        if scale is not None:
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        norm = tf.linalg.global_norm(gradients) if self._needs_norm else tf.zeros_like(count)
        numbers = (loss_sum, count, norm, *compared)
        return numbers, gradients, self.optimizer.clip(gradients, norm), finite


class Steps(Step):
    """Several steps a call, in a loop of the graph; between them nothing returns to Python."""

    def __call__(self, batch: Any, scalars: list[dict[str, float]], steps: range) -> StepResult:
        """As of one step, but with the numbers of each, and for ids (those of all steps, how many of each)."""
        values = tf.constant([[*each.values()] for each in scalars], self.spec.master_dtype)
        count = self.strategy.placement.micro_batches(0)
        if count not in self._traced:
            self._traced[count] = self._trace(count)
        first = tf.constant(steps.start, tf.int64)
        numbers, ids, gradients = self._traced[count](*self._flat(batch), values, first)
        return StepResult(numbers, ids, gradients)

    def _trace(self, micro_batches: int) -> Callable[..., tuple]:
        step, replicas = self._step(micro_batches), len(self.strategy.local_replicas)
        sizes, width = tf.TensorSpec([None], tf.int64), len(_local_batch(self.spec)) + 1

        def calls(*tensors: tf.Tensor) -> tuple:
            *flat, scalars, first = tensors
            local = [flat[start : start + width] for start in range(0, len(flat), width)]
            count = tf.shape(scalars)[0]
            stops = [tf.cumsum(sizes) for *_, sizes in local]

            def more(place: tf.Tensor, numbers: Any, ids: list, _: list) -> tuple:
                cut = []
                for (*batch, sizes), stop in zip(local, stops, strict=True):
                    cut += [tensor[stop[place] - sizes[place] : stop[place]] for tensor in batch]
                made, received, gradients, *_ = step(*cut, scalars[place], first + tf.cast(place, tf.int64))
                ids = [array.write(place, some) for array, some in zip(ids, received, strict=True)]
                return place + 1, numbers.write(place, made), ids, gradients

            def array(dtype: Any, shape: list) -> tf.TensorArray:
                return tf.TensorArray(dtype, count, element_shape=shape, infer_shape=False)

            zeros = [tf.zeros(weight.shape, weight.dtype) for weight in self._weights]
            begun = array(self.spec.master_dtype, [None]), [array(tf.int64, [None]) for _ in local], zeros
            _, numbers, ids, gradients = tf.while_loop(
                lambda place, *_: place < count, more, (tf.constant(0), *begun), parallel_iterations=1
            )
            received = [(a.concat(), sizes) for a, (*_, sizes) in zip(ids, local, strict=True)]
            return numbers.stack(), received, gradients

        signature = [*_local_batch(self.spec), sizes] * replicas
        scalars = tf.TensorSpec([None, len(self._names)], self.spec.master_dtype)
        signature += [scalars, tf.TensorSpec([], tf.int64)]
        return tf.function(calls, signature, autograph=False).get_concrete_function()


def apart(result: StepResult) -> list[StepResult]:
    """What each step of a call did."""
    received = [np.split(joined.numpy(), np.cumsum(sizes.numpy())[:-1]) for joined, sizes in result.ids]
    steps = zip(result.numbers.numpy(), *received, strict=True)
    return [StepResult(numbers, ids, result.gradients) for numbers, *ids in steps]


def build_step(
    spec: TrainSpec,
    model: Model,
    optimizer: Optimizer,
    strategy: Strategy,
    recording: bool,
    taps: bool = False,
) -> Callable[[Any, Any, int], StepResult]:
    """step(batch, scalars, number) -> StepResult; changes the model and the optimizer in place."""
    kind = Step if strategy.placement.steps_per_call == 1 else Steps
    return kind(spec, model, optimizer, strategy, recording, taps)


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


def _local_batch(spec: TrainSpec) -> list[tf.TensorSpec]:
    """Types of one replica's inputs, targets and sample ids, of any number of samples."""
    return [
        tf.TensorSpec([None, *spec.model.input_shape], spec.input_dtype),
        tf.TensorSpec([None, *spec.target_shape], spec.target_dtype),
        tf.TensorSpec([None], tf.int64),
    ]


def evaluate(
    spec: TrainSpec, model: Model, strategy: Strategy, batch: Any, probe: Any = None
) -> tuple[float, float, int]:
    """(loss sum, count, correct) over a batch distributed to the replicas, in inference mode.

    `probe` looks into it: `parity.tf_impl.probe.Probe`.
    """

    weights = list(model.parameters.values())

    def replica(inputs: tf.Tensor, targets: tf.Tensor, ids: tf.Tensor) -> tuple:
        context = model.context(False, inputs, ids)
        if probe is not None:
            context = probe.opened(context, inputs)
        outputs = model(inputs, context)
        loss_sum, count = losses.loss_sum_and_count(spec.loss, outputs, targets, context)
        if probe is not None:
            probe.lost(loss_sum, count)
        correct = losses.correct(spec.loss, outputs, targets, context)
        loss_sum, count, correct = strategy.sum([loss_sum, count, correct])
        return _penalized(spec.loss, weights, loss_sum, count, weights)[0], count, correct

    # Run eagerly: it is one batch, and tracing would cost more than it saves.
    loss_sum, count, correct = (
        float(strategy.unpack(total)[0]) for total in strategy.native.run(replica, args=batch)
    )
    return loss_sum, count, int(correct)
