"""Engine `keras`: the same spec through `model.compile` and `model.fit`, as users train today.

Stock: the optimizer, the loss and its reduction, the splitting of batches over replicas, the loop. Ours:
the layers, the initial values, the order of samples, and what is read for the record:

loss sum and count   Keras's own loss tracker, emptied before each batch. What `fit` prints of a batch is the
                     mean of the replicas' means.
sample ids           handed to the model as an input beside the samples; each replica says what it received.
gradients            summed over the replicas as the optimizer is about to sum them.
norms                of the variables, before and after a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.data.plan import BatchPlan, Ids
from parity.common.data.samples import Samples
from parity.common.execution.run import Run
from parity.common.execution.step import StepResult
from parity.common.spec import TrainSpec
from parity.tf_impl.engines import stock
from parity.tf_impl.model import Model
from parity.tf_impl.strategy import Strategy
from parity.tf_impl.strategy.values import own_variable


class KerasModel(keras.Model):
    """Our layers as a `keras.Model` of (samples, sample ids, step of each sample)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model
        self.root = model.root
        self.received: list[tuple[int, Ids]] = []
        self.built = True

    def call(self, inputs: tuple, training: bool | None = None) -> tf.Tensor:
        samples, ids, steps = inputs
        if training:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            tf.py_function(self._receive, [replica, ids], [])
        # Masks are keyed by step and sample, so each sample carries its step.
        context = self._model.context(bool(training), samples, ids, steps[:, None])
        return self._model(samples, context)

    def _receive(self, replica: tf.Tensor, ids: tf.Tensor) -> None:
        self.received.append((int(replica), ids.numpy()))


def _watched(optimizer: keras.optimizers.Optimizer, gradients: list[tf.Variable]) -> None:
    """Have an optimizer leave the gradients it is given, summed over the replicas, in variables."""
    apply = optimizer.apply

    def watching(grads: list[Any], trainable_variables: list[Any] | None = None) -> None:
        context = tf.distribute.get_replica_context()
        dense = [tf.convert_to_tensor(gradient) for gradient in grads]
        if context.num_replicas_in_sync > 1:
            dense = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        for variable, gradient in zip(gradients, dense, strict=True):
            variable.assign(gradient)
        apply(grads, trainable_variables)

    optimizer.apply = watching


class StockOptimizer:
    """A Keras optimizer where our own is expected: its slots by canonical name, and no average."""

    def __init__(self, spec: TrainSpec, model: Model, keras_model: KerasModel) -> None:
        self.native = stock.stock_optimizer(spec.optimizer, model)
        variables = keras_model.trainable_variables
        self.native.build(variables)
        names = {id(native): name for name, native in model.parameters.items()}
        order = [names[id(variable.value)] for variable in variables]
        self.slots = stock.slots_of(spec.optimizer, self.native, order)
        self._gradients = {n: own_variable(v.shape, v.dtype) for n, v in model.parameters.items()}
        _watched(self.native, [self._gradients[name] for name in order])

    @property
    def gradients(self) -> list[tf.Tensor]:
        """Of the last step, in the order of `model.parameters`."""
        return [tf.convert_to_tensor(variable) for variable in self._gradients.values()]


class Fit:
    """Training and evaluation through Keras's own loops."""

    def __init__(self, spec: TrainSpec, model: Model, strategy: Strategy) -> None:
        self._spec, self._strategy, self._model = spec, strategy, model
        with strategy.native.scope():
            self._keras_model = KerasModel(model)
            self.optimizer = StockOptimizer(spec, model, self._keras_model)
            self._accuracy = stock.StockAccuracy(spec.loss) if spec.loss.classes else None
            self._keras_model.compile(
                optimizer=self.optimizer.native,
                loss=stock.stock_loss(spec.loss),
                metrics=[] if self._accuracy is None else [self._accuracy],
                # XLA cannot call back into Python, and rounds otherwise.
                jit_compile=False,
            )
        self._counted = spec.loss.counted(spec.model.output_shape())

    def train(self, run: Run) -> None:
        """`fit` over a run's batches, each of which is recorded after it."""
        plan = run.plan
        items = [(lambda s=step: (plan.global_ids(s), plan.epoch(s), s)) for step in run.steps]
        dataset = self._dataset(items, run.samples)
        self._keras_model.fit(dataset, shuffle=False, verbose=0, callbacks=[_Watcher(self, run)])

    def evaluate(self, plan: BatchPlan, samples: Samples) -> tuple[float, float, int]:
        """(loss sum, count, correct) of `evaluate` over all samples."""
        if not len(samples):
            return 0.0, 0, 0
        # It fails where its first batch is split unevenly, so what the replicas can share comes first.
        items = []
        for ids in plan.chunks(len(samples), samples.first_id):
            even = len(ids) - len(ids) % plan.replicas
            items += [(lambda i=part: (i, 0, 0)) for part in (ids[:even], ids[even:]) if len(part)]
        self._keras_model.evaluate(self._dataset(items, samples), verbose=0)
        correct = 0 if self._accuracy is None else round(self._summed(self._accuracy.total))
        return *self.totals(), correct

    def compared(self) -> list[float]:
        """As of `Step`: the loop is Keras's, and sums nothing of ours between processes."""
        return []

    def totals(self) -> tuple[float, float]:
        """Loss sum and count since the metrics were last emptied."""
        tracker = self._keras_model.metrics[0]
        return self._summed(tracker.total) * self._counted, self._summed(tracker.count) * self._counted

    def _summed(self, variable: keras.Variable) -> float:
        """A metric's variable, of which each replica has its own part."""
        return sum(float(part) for part in self._strategy.unpack(variable.value))

    def _dataset(self, items: list[Callable[[], tuple]], samples: Samples) -> tf.data.Dataset:
        """Global batches ((inputs, ids, steps), targets), which Keras splits over the replicas itself.

        Each item gives the sample ids, the epoch and the step of one; Keras goes through them more than once.
        """
        spec = self._spec

        def batches() -> Iterator[tuple]:
            for item in items:
                ids, epoch, step = item()
                inputs, targets = samples.rows(ids, epoch)
                yield (inputs, ids, np.full(len(ids), step)), targets

        def of(shape: tuple[int, ...], dtype: Any) -> tf.TensorSpec:
            return tf.TensorSpec([None, *shape], dtype)

        signature = (
            (of(spec.model.input_shape, spec.input_dtype), of((), tf.int64), of((), tf.int64)),
            of(spec.target_shape, spec.target_dtype),
        )
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        return dataset.apply(tf.data.experimental.assert_cardinality(len(items)))


class _Watcher(keras.callbacks.Callback):
    """Sets each batch's learning rate before it, and reads what it did after it."""

    def __init__(self, fit: Fit, run: Run) -> None:
        super().__init__()
        self._fit, self._run = fit, run
        self._weights = list(fit._model.parameters.values())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del logs
        self._scalars = self._run.rates.scalars(self._run.steps[batch])
        self.model.optimizer.learning_rate = np.float64(self._scalars["learning_rate"])
        self.model.reset_metrics()
        self.model.received.clear()
        self._before = [np.array(weight.numpy()) for weight in self._weights]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        after = [np.array(weight.numpy()) for weight in self._weights]
        changes = [new - old for new, old in zip(after, self._before, strict=True)]
        gradients = self._fit.optimizer.gradients
        replicas = [*zip(*map(self._fit._strategy.unpack, self._weights), strict=True)]
        copies = [[copy.read_value() for copy in own] for own in replicas] if len(replicas) > 1 else []
        tensors = (gradients, after, changes, *copies)
        norms = [float(tf.linalg.global_norm(each)) for each in tensors]
        received = dict(self.model.received)
        ids = [tf.constant(received[replica], tf.int64) for replica in sorted(received)]
        numbers = tf.constant([*self._fit.totals(), *norms], tf.float64)
        self._run.record(self._run.steps[batch], self._scalars, StepResult(numbers, ids, gradients))
