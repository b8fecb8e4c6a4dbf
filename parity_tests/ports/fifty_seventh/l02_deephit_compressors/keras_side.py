"""Competing causes of compressor failure (seal, bearing) in discrete time, DeepHit style."""

import keras
import numpy as np
from keras import layers, ops

BINS = 12
CAUSES = 2
SITES = 6
# hours of service at the middle of each bin, in thousands
MIDDLES = np.array([0.25, 0.75, 1.5, 2.5, 3.5, 5.0, 7.0, 9.0, 11.5, 14.5, 18.0, 23.0], np.float32)
SCALE = 0.04


class ResidualBlock(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.up = layers.Dense(2 * units, activation="silu", name="up")
        self.down = layers.Dense(units, name="down")

    def build(self, shape):
        self.norm.build(shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], self.up.units))

    def call(self, x):
        return x + self.down(self.up(self.norm(x)))


class DeepHit(keras.Model):
    def __init__(self, width=16, **kwargs):
        super().__init__(**kwargs)
        self.site_table = layers.Embedding(SITES, 4, name="site_table")
        self.entry = layers.Dense(width, name="entry")
        self.blocks = [ResidualBlock(width, name=f"block{i}") for i in range(2)]
        self.cause_hidden = [layers.Dense(14, activation="selu", name=f"hidden{k}") for k in range(CAUSES)]
        self.cause_out = [layers.Dense(BINS, name=f"bins{k}") for k in range(CAUSES)]

    def call(self, inputs):
        sensors, site = inputs["sensors"], inputs["site"]
        x = ops.concatenate([sensors, self.site_table(site)], axis=-1)
        h = self.entry(x)
        for block in self.blocks:
            h = block(h)
        h = ops.concatenate([h, sensors], axis=-1)
        logits = [out(hidden(h)) for hidden, out in zip(self.cause_hidden, self.cause_out)]
        return ops.stack(logits, axis=1)


def loss(targets, outputs):
    """targets: (bin, cause), cause 0 for a unit still running at the end of its bin."""
    when = ops.cast(targets[:, 0], "int32")
    cause = ops.cast(targets[:, 1], "int32")
    flat = ops.reshape(outputs, (-1, CAUSES * BINS))
    log_p = ops.log_softmax(flat, axis=-1)

    failed = cause > 0
    index = ops.maximum(cause - 1, 0) * BINS + when
    event = ops.sum(ops.one_hot(index, CAUSES * BINS, dtype=log_p.dtype) * log_p, axis=-1)

    later = ops.arange(BINS, dtype="int32")[None, :] > when[:, None]
    later = ops.tile(later, (1, CAUSES))
    alive = ops.logsumexp(ops.where(later, log_p, -1e9), axis=-1)
    likelihood = -ops.where(failed, event, alive)

    # expected life, short of which a running unit may not fall
    p = ops.sum(ops.reshape(ops.exp(log_p), (-1, CAUSES, BINS)), axis=1)
    middles = ops.convert_to_tensor(MIDDLES, p.dtype)
    expected = ops.sum(p * middles, axis=-1)
    gap = (ops.take(middles, when, axis=0) - expected) * SCALE
    penalty = ops.where(failed, ops.square(gap), ops.square(ops.relu(gap)))
    return likelihood + penalty


def build():
    model = DeepHit(name="deephit")
    model({"sensors": np.zeros((1, 10), np.float32), "site": np.zeros((1,), np.int32)})
    return model
