"""A callback for Keras's `fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import keras
import tensorflow as tf

from parity.common.base.errors import RecordError
from parity.common.record.script import NAN, check_unused
from parity.tf_impl.recorder import Recorder

# An accuracy in float32 times its samples is a whole number up to this.
_WHOLE = 1e-3


class RecorderCallback(keras.callbacks.Callback):
    """Records `model.fit`, batch by batch.

    The loss is the one that the model's `compute_loss` returns, with its penalties, and the count the samples of the
    batch; of a `train_step` that does not call it, the sum of the numbers whose gradients its tapes give. What `fit` validates behind its last step is recorded as `finish` takes it, with the share of an accuracy where it has one. It needs a
    step an execution, and one replica.
    """

    def __init__(
        self, out: str | Path, *, ids: Callable[[int], Any] | None = None, summed: bool = False, **given: Any
    ) -> None:
        """Make a callback for one call of `fit`.

        Args:
            out: a new folder, or with `overwrite=True` one of an earlier record.
            ids: gives the sample ids of step 0, 1, 2, ..., which a callback cannot see.
            summed: whether the model's loss is a sum over the samples (reduction="sum"), and not their mean.
            given: as `Recorder` takes them; `optimizer` where a `train_step` has others than the compiled one.
        """
        super().__init__()
        self._out, self._ids, self._summed, self._given = out, ids, summed, given
        self._recorder: Recorder | None = None
        self._evaluating = False
        self._computes = False  # whether a step calls compute_loss
        self._evaluation: tuple[float, float, int] | None = None  # since the last step

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin the record; the model is built and compiled by now."""
        check_unused(self._recorder, "fit")
        model = self.model
        if model.distribute_strategy.num_replicas_in_sync > 1:
            raise RecordError(
                "RecorderCallback sees one replica, and the model has several: write the loop out and use Recorder"
            )
        if model.steps_per_execution > 1:
            raise RecordError(
                f"steps_per_execution is {model.steps_per_execution}: a callback sees only every so-manieth step;"
                " compile with steps_per_execution=1"
            )
        self._batch = tf.Variable([NAN, NAN], trainable=False, dtype=tf.float64)
        self._evaluated = tf.Variable([0.0, 0.0], trainable=False, dtype=tf.float64)
        given = {"optimizer": model.optimizer, **self._given}
        self._recorder = Recorder(self._out, model, **given)
        compute_loss, train_step = model.compute_loss, model.train_step

        def watched(x: Any = None, *others: Any, **named: Any) -> Any:
            loss = compute_loss(x, *others, **named)
            first = next(part for part in tf.nest.flatten(x) if part is not None)
            numbers = tf.stack([tf.cast(part, tf.float64) for part in (loss, tf.shape(first)[0])])
            if self._evaluating:
                weight = 1.0 if self._summed else numbers[1]
                self._evaluated.assign_add(numbers * tf.stack([weight, 1.0]))
            elif named.get("training", True):
                self._computes = True
                self._batch.assign(numbers)
            return loss

        def stepped(data: Any) -> Any:
            self._computes, losses = False, list[Any]()
            with _seen_losses(losses):
                result = train_step(data)
            if losses and not self._computes:
                count = tf.shape(tf.nest.flatten(data)[0])[0]
                total = tf.add_n([tf.cast(loss, tf.float64) for loss in losses])
                self._batch.assign(tf.stack([total, tf.cast(count, tf.float64)]))
            return result

        model.compute_loss, model.train_step = watched, stepped
        # What an earlier fit has traced does not call these.
        model.make_train_function(force=True)
        model.test_function = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A step is over."""
        recorder = self._recorder
        assert recorder is not None
        ids = None if self._ids is None else self._ids(recorder.count)
        recorder._end_batch(self._batch.read_value(), ids, self._summed)
        self._evaluation = None

    def on_test_begin(self, logs: Any = None) -> None:
        """The model is evaluated between two steps."""
        if self._recorder is not None:
            self._recorder._evaluates()
            self._evaluated.assign([0.0, 0.0])
            self._evaluating = True

    def on_test_end(self, logs: Any = None) -> None:
        """Keep what the evaluation came to."""
        if self._evaluating:
            self._evaluating = False
            loss, count = self._evaluated.numpy().tolist()
            shares = [value for name, value in (logs or {}).items() if name.endswith("accuracy")]
            correct = float(shares[0]) * count if len(shares) == 1 else 0.0
            # An accuracy of tokens, or with weights, counts no samples.
            counted = round(correct) if abs(correct - round(correct)) < _WHOLE else 0
            self._evaluation = (loss, count, counted) if count else None

    def on_train_end(self, logs: Any = None) -> None:
        """Mark the record complete, and leave the model as it was."""
        for name in ("compute_loss", "train_step"):
            self.model.__dict__.pop(name, None)
        self.model.train_function = self.model.test_function = None
        if self._recorder is not None:
            self._recorder.finish(self._evaluation)


@contextmanager
def _seen_losses(losses: list[Any]) -> Iterator[None]:
    """Within, a number whose gradients by variables a tape is asked for is a loss."""
    gradient = tf.GradientTape.gradient

    def seen(tape: tf.GradientTape, target: Any, sources: Any, *others: Any, **named: Any) -> Any:
        found = gradient(tape, target, sources, *others, **named)
        numbers = [each for each in tf.nest.flatten(target) if each is not None and not each.shape.rank]
        of_variables = any(
            isinstance(each, tf.Variable | keras.Variable) for each in tf.nest.flatten(sources)
        )
        if of_variables and numbers:
            losses.append(tf.add_n(numbers))
        return found

    with patch.object(tf.GradientTape, "gradient", seen):
        yield
