"""Keras's fit and a loop in a tf.function, in float32, that follow torch's scripts and each other. See `test_followed.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf

from parity.common.record import followed
from parity.tf_impl.recorder import Recorder, RecorderCallback
from parity_tests.recorded.followed import (
    BATCH,
    CLASSES,
    CROSS,
    DECAY,
    LATER,
    MAPPING,
    OWN,
    PIXELS,
    RECURRENT,
    STEPS,
    batches,
    data,
    weights,
)


class TorchSGD(keras.optimizers.SGD):
    """With torch's momentum, which has no rate in it."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        buffer = self.momentums[self._get_variable_index(variable)]
        buffer.assign(self.momentum * buffer + gradient)
        variable.assign_sub(learning_rate * buffer)


def parts(fault: str) -> tuple[keras.Model, keras.optimizers.Optimizer, keras.losses.Loss]:
    """The convnet of `followed_torch`, its optimizer and its loss."""
    model = keras.Sequential(
        [
            keras.Input((PIXELS, PIXELS, 1)),
            keras.layers.Conv2D(4, 3, activation="relu", name="conv"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES, name="head"),
        ]
    )
    model.set_weights(weights())
    rate, momentum = 0.1 if fault == "learning rate" else 0.05, 0.8 if "momentum" in fault else 0.9
    if fault == "rate drops":
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([LATER - 1], [0.05, 0.005])
    decay = 0.01 if fault == "weight decay" else None
    cls = TorchSGD if fault.startswith("own") else keras.optimizers.SGD
    optimizer = cls(rate, momentum=momentum, weight_decay=decay)
    return model, optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Trainer(keras.Model):
    """As keras.io has them: only its part is called, and its loss is its own."""

    def __init__(self, part: keras.Model, loss_of: keras.losses.Loss) -> None:
        super().__init__()
        self.part, self.loss_of = part, loss_of

    def train_step(self, data: Any) -> dict[str, Any]:
        """One tape gives gradients of the loss, one of what it is made of."""
        x, y = data
        with tf.GradientTape() as outer, tf.GradientTape(persistent=True) as inner:
            inner.watch(x)
            outputs = self.part(x, training=True)
            loss = self.loss_of(y, outputs)
        inner.gradient(outputs, x)
        inner.gradient(loss, x)
        found = outer.gradient(loss, self.part.trainable_variables)
        self.optimizer.apply_gradients(zip(found, self.part.trainable_variables, strict=True))
        return {"loss": loss}


def fit(out: Path, fault: str = "", shuffled: bool = False, evaluates: bool = False, **options: Any) -> None:
    """`model.fit`. evaluates: after each third of the steps."""
    model, optimizer, loss = parts(fault)
    images, classes, _ = data()
    images = images[..., None]
    if fault == "recurrent":
        images = images[..., 0]
        head = keras.layers.Dense(CLASSES, name="head")
        model = keras.Sequential([keras.Input((PIXELS, PIXELS)), keras.layers.LSTM(4, name="lstm"), head])
    if fault == "trainer":
        trainer = Trainer(model, loss)
        trainer.compile(optimizer)
        given = tf.data.Dataset.from_tensor_slices((images, classes)).batch(BATCH).repeat()
        trainer.fit(given, steps_per_epoch=STEPS, verbose=0, callbacks=[RecorderCallback(out, **options)])
        return
    model.compile(optimizer, loss, metrics=["accuracy"])
    order = list(batches(shuffled))
    rows = np.concatenate(order)
    given = tf.data.Dataset.from_tensor_slices((images[rows], classes[rows])).batch(BATCH)
    callback = RecorderCallback(out, ids=lambda step: order[step], **options)
    third = LATER // 2
    thirds = {"epochs": 3, "steps_per_epoch": third, "validation_data": given.take(1)} if evaluates else {}
    model.evaluate(given, verbose=0)  # what is traced here does not show the callback anything
    history = model.fit(given, shuffle=False, verbose=0, callbacks=[callback], **thirds).history
    (out.parent / f"{out.name}.json").write_text(json.dumps({name: row[-1] for name, row in history.items()}))


def loop(out: Path, fault: str = "", **options: Any) -> None:
    """A loop of one's own."""
    model, optimizer, loss_of = parts(fault)
    images, classes, _ = data()

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) * (4.0 if fault == "loss scale" else 1.0)
        found = tape.gradient(loss, model.trainable_variables)
        if fault == "by hand":
            found = [
                gradient + DECAY * weight
                for gradient, weight in zip(found, model.trainable_variables, strict=True)
            ]
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))
        return loss

    with Recorder(out, model, optimizer, **options) as recorder:
        for step, ids in enumerate(batches(True)):
            if "set" in fault and step == LATER:
                optimizer.learning_rate = float(optimizer.learning_rate) / 10
                # As torch's momentum, which has no rate in it.
                for velocity in optimizer.momentums if "velocity" in fault else ():
                    velocity.assign(velocity / 10)
            recorder.step(train_step(images[ids, :, :, None], classes[ids]), count=BATCH, ids=ids)


def two(out: Path, first: int = 0, scale: float = 1.0, **options: Any) -> None:
    """An optimizer for the filters, and another kind for the head, which has its turn at each second step from the first one on."""
    model, sgd, loss_of = parts("")
    adagrad = keras.optimizers.Adagrad(3e-3)
    images, classes, _ = data()
    if first:  # which a function that is traced again could not do
        adagrad.build(model.layers[-1].trainable_variables)

    @tf.function
    def train_step(x: Any, y: Any, both: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) * scale
        filters, head = model.layers[0].trainable_variables, model.layers[-1].trainable_variables
        of_filters, of_head = tape.gradient(loss, [filters, head])
        sgd.apply_gradients(zip(of_filters, filters, strict=True))
        if both:
            adagrad.apply_gradients(zip(of_head, head, strict=True))
        return loss

    with Recorder(out, model, [sgd, adagrad], **options) as recorder:
        for step, ids in enumerate(batches(False)):
            turn = step % 2 == 0 and step >= first
            loss = train_step(images[ids, :, :, None], classes[ids], turn)
            recorder.step(loss, count=BATCH, ids=ids)


def main(folder: Path) -> None:
    """All scripts."""
    mapping = folder / "mapping.yaml"
    mapping.write_text(MAPPING)
    fit(folder / "keras", states=True)
    for fault in CROSS:
        fit(folder / f"keras_{fault}", fault, True, follow=folder / "keras")
        fit(folder / f"torch_keras_{fault}", fault, True, follow=folder / "torch", mapping=mapping)
    fit(folder / "trainer", "trainer")
    for fault in OWN:
        fit(folder / f"torch_keras_{fault}", fault, True, follow=folder / "torch", mapping=mapping)
    with patch.object(followed, "EVERY_STEP_BYTES", 0):
        fit(folder / "keras_large", evaluates=True, states=True)
    fit(folder / "keras_large_", "", True, evaluates=True, follow=folder / "keras_large")
    fit(folder / "keras_rate drops", "rate drops", True, follow=folder / "torch_drops", mapping=mapping)
    (folder / "recurrent.yaml").write_text(RECURRENT)
    fit(folder / "recurrent", "recurrent", states=True)
    fit(folder / "keras_drops", "rate drops", states=True)
    for fault in ("rate is set", "rate and velocity are set"):
        loop(folder / f"keras_{fault}", fault, follow=folder / "torch_drops", mapping=mapping)
    loop(folder / "keras_decayed by hand", "by hand", follow=folder / "decayed", mapping=mapping)
    two(folder / "two", states=True)
    two(folder / "late", 4, states=True)
    two(folder / "late_scaled", 4, 2.0, follow=folder / "late")
    loop(folder / "keras_loop", follow=folder / "keras")
    loop(folder / "keras_loop_scaled", "loss scale", follow=folder / "keras")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
