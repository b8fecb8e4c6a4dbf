"""A training step of the user's own: the `train_step` of a Keras model, without its update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.execution.pass_context import Context
from parity.common.spec.external.target import Target
from parity.common.spec.losses import LossBase
from parity.tf_impl import losses
from parity.tf_impl.external import own_loss
from parity.tf_impl.external.own_loss import WHOLE
from parity.tf_impl.private_names import CommonVariable


class _NoUpdate:
    """What takes the optimizer's place: it keeps what it is given."""

    def __init__(self, iterations: Any) -> None:
        self.given: list[list[tuple[Any, Any]]] = []
        self.iterations = iterations

    def apply_gradients(self, grads_and_vars: Iterable[Any], **_: Any) -> None:
        self.given.append(list(grads_and_vars))

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        self.given.append(list(zip(grads, trainable_variables, strict=True)))

    def scale_loss(self, value: Any) -> Any:
        return value


class _Rows:
    """Which tables the latest pass had gradients of rows alone for, and for which of these a step then made whole ones, by their variables' ids."""

    def __init__(self) -> None:
        self._tables: set[int] = set()
        self._whole: set[int] = set()

    def zeros(self, source: Any) -> Any:
        """Gradients that are zero, of the kind that those of a trained tensor are."""
        if id(_native(source)) not in self._tables:
            return tf.zeros(source.shape, source.dtype)
        none = tf.zeros((0, *source.shape[1:]), source.dtype)
        return tf.IndexedSlices(none, tf.zeros(0, tf.int32), tf.constant(source.shape))

    def handed(self, variable: Any, gradient: Any) -> None:
        """A step hands its optimizer a gradient."""
        if isinstance(gradient, tf.Tensor):
            self._whole.add(id(_native(variable)))

    def left(self, found: Sequence[Any], sources: Sequence[Any]) -> dict[int, tf.IndexedSlices]:
        """Of a pass's gradients those of rows alone, by place, that a step has not made whole before."""
        rows = {place: each for place, each in enumerate(found) if isinstance(each, tf.IndexedSlices)}
        whole = self._whole & self._tables
        self._tables, self._whole = {id(sources[place]) for place in rows}, set()
        return {place: each for place, each in rows.items() if id(sources[place]) not in whole}


ROWS = _Rows()


def loss(
    target: Target,
    model: keras.Model,
    batch: Any,
    iterations: Any = 0,
    compiled: Target | LossBase | None = None,
) -> tf.Tensor:
    """Return the loss that a step computes, a scalar.

    Args:
        target: of the model.
        model: its `train_step(batch)` is called; what it would update stays.
        batch: as `process.objective.batch_of` makes it.
        iterations: how many updates were made, as the step may ask its optimizer.
        compiled: a loss that `compute_loss` gives, with what the model adds; None: its own.

    Raises:
        ExternalModelError: the step makes no update of all trained weights by the gradients of one loss.
    """
    if not isinstance(model, keras.Model):
        raise ExternalModelError(f"{target} is a layer, and has no train_step; give a keras.Model")
    computing, asked = nullcontext(), list[bool]()
    if compiled is not None:
        compute_loss = _computed(compiled, model, asked)
        if type(model).train_step is keras.Model.train_step:
            # As it does, which needs a model that is compiled.
            x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
            return compute_loss(x, y, model(x, training=True), weights)
        computing = mock.patch.dict(vars(model), compute_loss=compute_loss)
    optimizer = _NoUpdate(iterations)
    found: list[tuple[Any, list[Any]]] = []
    taken = tf.GradientTape.gradient

    def gradient(tape: tf.GradientTape, value: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        # Of anything else than weights, such as forces, it is a part of what the loss is made of. The step may have built them.
        weights = {id(_native(variable)) for variable in model.weights}
        if not any(id(_native(source)) in weights for source in tf.nest.flatten(sources)):
            return taken(tape, value, sources, *args, **kwargs)
        # Nothing is made of them here: whoever asked for the loss takes its gradients.
        zeros = tf.nest.map_structure(ROWS.zeros, sources)
        found.append((value, tf.nest.flatten(zeros)))
        return zeros

    def watched(convert: Callable[..., Any]) -> Callable[..., Any]:
        """A function that may make whole gradients of those of rows."""

        def converted(value: Any, *args: Any, **kwargs: Any) -> Any:
            made = convert(value, *args, **kwargs)
            if found and any(value is each for each in found[-1][1]):
                found[-1][1].append(made)
            return made

        return converted

    kept = vars(model).get("optimizer")
    model.optimizer = optimizer
    try:
        with (
            computing,
            WHOLE.within(),
            mock.patch.object(tf.GradientTape, "gradient", gradient),
            mock.patch.object(tf, "convert_to_tensor", watched(tf.convert_to_tensor)),
            mock.patch.object(keras.ops, "convert_to_tensor", watched(keras.ops.convert_to_tensor)),
        ):
            model.train_step(batch)
    finally:
        model.optimizer = kept
    if compiled is not None and not asked:
        raise ExternalModelError(
            f"the train_step of {target} computes its loss itself, and asks compute_loss for none: leave --loss and --keras-loss out"
        )
    if len(found) != 1 or len(optimizer.given) != 1:
        raise ExternalModelError(
            f"the train_step of {target} takes {len(found)} gradients and makes {len(optimizer.given)} updates by its"
            " optimizer; a step that is compared takes one and makes one"
        )
    ((value, gradients),), (updates,) = found, optimizer.given
    known = {id(each) for each in gradients}
    if any(given is not None and id(given) not in known for given, _ in updates):
        raise ExternalModelError(
            f"the train_step of {target} hands its optimizer other gradients than those of its loss (clipped?); leave"
            " that to the optimizer"
        )
    for given, variable in updates:
        ROWS.handed(variable, given)
    trained = {id(_native(variable)) for _, variable in updates}
    left = [variable.path for variable in model.trainable_weights if id(_native(variable)) not in trained]
    if left:
        raise ExternalModelError(
            f"the train_step of {target} does not update {', '.join(left[:3])}; set trainable = False where that is meant"
        )
    return tf.reduce_sum(tf.convert_to_tensor(value))


def _computed(compiled: Target | LossBase, model: keras.Model, asked: list[bool]) -> Callable[..., tf.Tensor]:
    """A `compute_loss` that gives a loss with the model's penalties, and notes that it was asked."""

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> tf.Tensor:
        del x
        asked.append(True)
        if isinstance(compiled, Target):
            mean = own_loss.mean(compiled, y_pred, y, sample_weight)
        else:
            context = Context(training=training)
            total, count = losses.loss_sum_and_count(compiled, y_pred, y, context, sample_weight)
            mean = total / count
        return mean + own_loss.added(model)

    return compute_loss


def _native(variable: Any) -> Any:
    return variable._value if isinstance(variable, CommonVariable) else variable
