"""Phases of an operation from the features of its video's frames: a multi-stage temporal convolutional network, with the
remaining share of the operation as a second task. Videos differ in length; `valid` is 1 for their frames, and `phase` is -1
behind their end."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

FRAMES, FEATURES, PHASES = 36, 14, 6
STAGES, LAYERS, WIDTH = 3, 4, 24
# median frequency of the phases over their own
PHASE_WEIGHTS = np.array([1.75, 0.5, 1.0, 0.625, 1.25, 2.5], dtype=np.float32)
SMOOTHING, SMOOTHING_LIMIT = 0.15, 16.0
REMAINING = 0.5


def dilated_residual(x, mask, dilation, name):
    y = layers.Conv1D(
        WIDTH, 3, padding="same", dilation_rate=dilation, activation="relu", name=f"{name}_dilated"
    )(x)
    y = layers.Conv1D(WIDTH, 1, name=f"{name}_point")(y)
    return layers.Multiply(name=f"{name}_masked")([layers.Add(name=f"{name}_sum")([x, y]), mask])


def stage(x, mask, name):
    x = layers.Dense(WIDTH, name=f"{name}_in")(x)
    for i in range(LAYERS):
        x = dilated_residual(x, mask, 2**i, f"{name}_layer{i}")
    return x, layers.Multiply(name=f"{name}_logits")([layers.Dense(PHASES, name=f"{name}_out")(x), mask])


class PhaseModel(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    @staticmethod
    def objective(outputs, valid, phase, remaining):
        mask = ops.cast(valid, outputs["logits"].dtype)
        label = ops.maximum(ops.cast(phase, "int32"), 0)
        weight = ops.take(ops.cast(PHASE_WEIGHTS, mask.dtype), label, axis=0) * mask
        frames = ops.sum(mask, axis=1)
        steps = ops.sum(mask[:, 1:], axis=1)
        loss = 0.0
        for logits in ops.unstack(outputs["logits"], axis=1):
            log_p = ops.log_softmax(logits, axis=-1)
            entropy = -ops.squeeze(ops.take_along_axis(log_p, label[..., None], axis=-1), axis=-1)
            loss += ops.mean(ops.sum(weight * entropy, axis=1) / ops.sum(weight, axis=1))
            jump = ops.square(log_p[:, 1:] - ops.stop_gradient(log_p[:, :-1]))
            jump = ops.mean(ops.minimum(jump, SMOOTHING_LIMIT), axis=-1) * mask[:, 1:]
            loss += SMOOTHING * ops.mean(ops.sum(jump, axis=1) / steps)
        error = ops.abs(outputs["remaining"] - remaining) * mask
        return loss + REMAINING * ops.mean(ops.sum(error, axis=1) / frames)

    def train_step(self, data):
        inputs, targets = data[0], data[1]
        valid = inputs["valid"] if isinstance(inputs, dict) else inputs[1]
        phase, remaining = (targets["phase"], targets["remaining"]) if isinstance(targets, dict) else targets
        with tf.GradientTape() as tape:
            loss = self.objective(self(inputs, training=True), valid, phase, remaining)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    features = keras.Input((FRAMES, FEATURES), name="features")
    valid = keras.Input((FRAMES,), name="valid")
    mask = layers.Reshape((FRAMES, 1), name="mask")(valid)
    hidden, logits = stage(features, mask, "stage0")
    remaining = layers.Dense(12, activation="tanh", name="remaining_hidden")(hidden)
    remaining = layers.Dense(1, activation="sigmoid", name="remaining_out")(remaining)
    remaining = layers.Reshape((FRAMES,), name="remaining")(remaining)
    every = [logits]
    for i in range(1, STAGES):
        x = layers.Multiply(name=f"stage{i}_belief")([layers.Softmax(name=f"stage{i}_softmax")(logits), mask])
        _, logits = stage(x, mask, f"stage{i}")
        every.append(logits)
    stack = [layers.Reshape((1, FRAMES, PHASES), name=f"stage{i}_row")(l) for i, l in enumerate(every)]
    outputs = {"logits": layers.Concatenate(axis=1, name="logits")(stack), "remaining": remaining}
    return PhaseModel(inputs={"features": features, "valid": valid}, outputs=outputs, name="ms_tcn")
