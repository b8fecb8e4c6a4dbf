"""Conditional neural process for irregular curves: some observed points, a Gaussian at others."""

import keras
from keras import layers, ops


def mlp(sizes, name):
    *hidden, last = sizes
    return keras.Sequential(
        [layers.Dense(size, activation="relu") for size in hidden] + [layers.Dense(last)], name=name
    )


class ConditionalProcess(keras.Model):
    def __init__(self, width=16, floor=0.1, **kwargs):
        super().__init__(**kwargs)
        self.floor = floor
        self.encoder = mlp((width, width, width), "encoder")
        self.decoder = mlp((width, width, 2), "decoder")

    def call(self, inputs):
        pairs = ops.stack([inputs["context_x"], inputs["context_y"]], axis=-1)
        known = inputs["context_mask"][..., None]
        encoded = self.encoder(pairs) * known
        summary = ops.sum(encoded, axis=1) / ops.maximum(ops.sum(known, axis=1), 1)
        x = inputs["target_x"][..., None]
        summary = ops.repeat(summary[:, None], x.shape[1], axis=1)
        mean, raw = ops.split(self.decoder(ops.concatenate([x, summary], axis=-1)), 2, axis=-1)
        sigma = self.floor + (1 - self.floor) * ops.softplus(raw)
        return ops.concatenate([mean, sigma], axis=-1)


def build():
    model = ConditionalProcess()
    model(
        {
            "context_x": ops.zeros((1, 8)),
            "context_y": ops.zeros((1, 8)),
            "context_mask": ops.ones((1, 8)),
            "target_x": ops.zeros((1, 10)),
        }
    )
    return model


def loss(y_true, y_pred):
    """Negative log likelihood of a curve's points; y_true holds the values and which of them count."""
    value, valid = y_true[..., 0], y_true[..., 1]
    mean, sigma = y_pred[..., 0], y_pred[..., 1]
    nll = 0.5 * ops.square((value - mean) / sigma) + ops.log(sigma)
    return ops.sum(nll * valid, axis=1) / ops.sum(valid, axis=1)
