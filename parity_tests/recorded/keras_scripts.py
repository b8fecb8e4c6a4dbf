"""Keras's fit, and hand-written TensorFlow loops, recorded. See the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.tf_impl.recorder import Recorder, RecorderCallback
from parity_tests.recorded import (
    BARE,
    BATCH,
    BETAS,
    CHANNELS,
    CLASSES,
    FEATURES,
    KERAS,
    MOMENTUM,
    PIXELS,
    SCRIPTS,
    STEPS,
    UNITS,
    batch,
    data,
    image_weights,
    images,
    run_snippet,
    weights,
)


def model_of(scale: float = 1.0) -> keras.Model:
    """Two dense layers with the weights of the package."""
    layers = [keras.layers.Dense(UNITS, "tanh", name="hidden"), keras.layers.Dense(CLASSES, name="logits")]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers])
    model.set_weights(weights(scale))
    return model


def optimizer_of(given: dict[str, Any]) -> keras.optimizers.Optimizer:
    """SGD with momentum, or Adam with the epsilon given."""
    rate = given.get("learning_rate", 0.25)
    if "adam" in given:
        return keras.optimizers.Adam(rate / 4, *BETAS, given["adam"])
    return keras.optimizers.SGD(rate, momentum=given.get("momentum", MOMENTUM))


def loss_of(given: dict[str, Any]) -> keras.losses.Loss:
    """Cross entropy, its mean or its sum."""
    reduction = given.get("reduction", "sum_over_batch_size")
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)


def flat(model: keras.Model) -> np.ndarray:
    """All weights, end to end."""
    return np.concatenate([np.ravel(value) for value in model.get_weights()])


def fit(out: Path | None, given: dict[str, Any], **options: Any) -> np.ndarray:
    """`model.fit` over the batches of the package."""
    model, order = model_of(given.get("scale", 1.0)), given.get("order", 0)
    model.compile(optimizer_of(given), loss_of(given))
    features, classes = data()
    rows = np.concatenate([batch(step, order) for step in range(STEPS)])
    batches = tf.data.Dataset.from_tensor_slices((features[rows], classes[rows])).batch(BATCH)
    callbacks = []
    if out is not None:
        options["summed"] = given.get("reduction") == "sum"
        callbacks = [RecorderCallback(out, ids=lambda step: batch(step, order), **options)]
    model.fit(batches, shuffle=False, verbose=0, callbacks=callbacks)
    return flat(model)


def loop(out: Path | None, given: dict[str, Any], graph: bool, **options: Any) -> np.ndarray:
    """A loop of one's own."""
    model, optimizer, loss_function = model_of(), optimizer_of(given), loss_of(given)

    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    train_step = tf.function(train_step) if graph else train_step
    features, classes = data()
    recorder = None if out is None else Recorder(out, model, optimizer, **options)
    for step in range(STEPS):
        ids = batch(step)
        loss = train_step(tf.constant(features[ids]), tf.constant(classes[ids]))
        if recorder is not None:
            recorder.step(loss, count=BATCH, ids=ids)
    if recorder is not None:
        recorder.finish()
    return flat(model)


def pictures(out: Path, jit: bool) -> None:
    """Three steps of two micro-batches, with a look at the whole batch after each."""
    layers = [keras.layers.Conv2D(CHANNELS, 3, padding="same", name=name) for name in ("first", "twice")]
    x = given = keras.Input(PIXELS)
    for layer in (layers[0], layers[1], layers[1]):
        y = layer(x)
        x = keras.ops.relu(y)
    model = keras.Model(given, keras.ops.mean(y, (1, 2)))
    model.set_weights(image_weights())
    optimizer = keras.optimizers.SGD(0.125)
    inputs, wanted = map(tf.constant, images())

    def look(rows: Any) -> Any:
        return tf.reduce_mean(tf.square(model(inputs[rows]) - wanted[rows]))

    @tf.function(jit_compile=jit)
    def train_step() -> Any:
        losses, total = [], None
        for rows in (slice(0, 4), slice(4, 8)):
            with tf.GradientTape() as tape:
                losses.append(look(rows))
            found = tape.gradient(losses[-1], model.trainable_variables)
            total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
        optimizer.apply([g / 2 for g in total], model.trainable_variables)
        return losses

    with Recorder(out, model, optimizer, every=1, taps=True) as recorder:
        for _ in range(3):
            for loss in train_step():
                recorder.add(float(loss), 4)
            recorder.step()
            look(slice(0, 8))


class Holding(keras.Model):
    """What a loop trains in one record: a model that it calls by itself, and a list of that one's weights."""

    def __init__(self, part: keras.Model) -> None:
        super().__init__(name="holding")
        self.part, self.ordered = part, [*part.trainable_variables]
        self.built = True


def held(out: Path) -> None:
    """A loop whose model is part of another one, which is never called itself."""
    part, optimizer, loss_function = model_of(), optimizer_of({}), loss_of({})
    optimizer.build(part.trainable_variables)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(y, part(x, training=True))
        optimizer.apply(tape.gradient(loss, part.trainable_variables))
        return loss

    features, classes = data()
    with Recorder(out, Holding(part), optimizer, every=1, taps=True) as recorder:
        for step in range(3):
            loss = train_step(features[batch(step)], classes[batch(step)])
            recorder.step(loss, count=BATCH, ids=batch(step))


def main(folder: Path) -> None:
    """All scripts."""
    keras.config.set_floatx("float64")
    for name in KERAS:
        given = SCRIPTS[name]
        weights_after = fit(folder / name, given, every=1, taps=True)
        if name in BARE:
            np.save(folder / f"bare_{name}.npy", fit(None, given))
            np.save(folder / f"with_{name}.npy", weights_after)
    pictures(folder / "pictures", False)
    pictures(folder / "pictures_jit", True)
    held(folder / "held")
    model, (features, classes) = model_of(), data()
    model.compile(optimizer_of({}), loss_of({}))
    rows = np.concatenate([np.concatenate([batch(step), batch(step)]) for step in range(STEPS)])
    run_snippet(1, folder, {"model": model, "x": features[rows], "y": classes[rows]})
    model, optimizer, loss_function = model_of(), optimizer_of({}), loss_of({})

    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    batches = [(features[ids], classes[ids], ids) for ids in map(batch, range(STEPS))]
    told = {"model": model, "optimizer": optimizer, "train_step": tf.function(train_step), "batches": batches}
    run_snippet(2, folder, told)
    for name, graph in (("eager", False), ("graph", True)):
        np.save(folder / f"bare_{name}.npy", loop(None, {}, graph))
        np.save(folder / f"with_{name}.npy", loop(folder / name, {}, graph, every=1, taps=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
