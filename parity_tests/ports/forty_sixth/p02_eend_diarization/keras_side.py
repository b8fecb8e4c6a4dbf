"""Who speaks when: self-attentive end-to-end diarisation with encoder-decoder attractors (EEND-EDA)."""

import itertools

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

FRAMES = 40
MELS = 24
SPEAKERS = 3
PERMUTATIONS = np.array(list(itertools.permutations(range(SPEAKERS))), "int32")
WARMUP = 30


class EncoderBlock(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.norm1 = layers.LayerNormalization(epsilon=1e-5, name="norm1")
        self.attention = layers.MultiHeadAttention(heads, dim // heads, name="attention")
        self.norm2 = layers.LayerNormalization(epsilon=1e-5, name="norm2")
        self.inner = layers.Dense(2 * dim, activation="relu", name="inner")
        self.outer = layers.Dense(dim, name="outer")

    def call(self, x, mask):
        y = self.norm1(x)
        x = x + self.attention(y, y, attention_mask=mask[:, None, :])
        return x + self.outer(self.inner(self.norm2(x)))


class Diarizer(keras.Model):
    def __init__(self, dim=32, heads=2, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.project = layers.Dense(dim, name="project")
        self.project_norm = layers.LayerNormalization(epsilon=1e-5, name="project_norm")
        self.blocks = [EncoderBlock(dim, heads, name=f"block_{i}") for i in range(depth)]
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.reader = layers.GRU(dim, return_state=True, name="reader")
        self.writer = layers.GRU(dim, return_sequences=True, name="writer")
        self.counter = layers.Dense(1, name="counter")

    def call(self, inputs, training=None):
        """Logits of activity (batch, frames, speakers), and of whether each attractor is a speaker (batch, speakers + 1)."""
        features, lengths = named(inputs, ("features", "lengths"))
        mask = ops.arange(FRAMES, dtype="int32")[None] < ops.cast(lengths, "int32")[:, None]
        x = self.project_norm(self.project(features))
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        _, summary = self.reader(x, mask=mask)
        nothing = ops.zeros_like(x[:, : SPEAKERS + 1])
        attractors = self.writer(nothing, initial_state=summary)
        exists = self.counter(ops.stop_gradient(attractors))[..., 0]
        activity = ops.einsum("btd,bsd->bts", x, attractors[:, :SPEAKERS])
        return activity, exists

    def train_step(self, data):
        inputs, targets = data
        speech, speakers = named(targets, ("speech", "speakers"))
        lengths = named(inputs, ("features", "lengths"))[1]
        with tf.GradientTape() as tape:
            activity, exists = self(inputs, training=True)
            loss = permutation_free(speech, activity, lengths) + existence(speakers, exists)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def named(values, names):
    return [values[n] for n in names] if isinstance(values, dict) else list(values)


def bce(labels, logits):
    return ops.relu(logits) - labels * logits + ops.softplus(-ops.abs(logits))


def permutation_free(speech, activity, lengths):
    """The best order of the speakers, of each recording; its loss is the mean over the recording's frames."""
    dtype = activity.dtype
    lengths = ops.cast(lengths, "int32")
    valid = ops.cast(ops.arange(FRAMES, dtype="int32")[None] < lengths[:, None], dtype)
    orders = ops.take(ops.cast(speech, dtype), PERMUTATIONS, axis=2)
    losses = ops.mean(bce(orders, activity[:, :, None, :]), axis=-1)
    losses = ops.sum(losses * valid[..., None], axis=1) / ops.cast(lengths, dtype)[:, None]
    return ops.mean(ops.min(losses, axis=1))


def existence(speakers, exists):
    """The attractors of the speakers and the one that follows them, which says to stop."""
    index = ops.arange(SPEAKERS + 1, dtype="int32")[None]
    speakers = ops.cast(speakers, "int32")[:, None]
    labels = ops.cast(index < speakers, exists.dtype)
    asked = ops.cast(index <= speakers, exists.dtype)
    return ops.mean(ops.sum(bce(labels, exists) * asked, axis=1) / ops.sum(asked, axis=1))


class Noam(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak=2e-3, warmup=WARMUP):
        self.peak = peak
        self.warmup = warmup

    def __call__(self, step):
        step = ops.cast(step, keras.config.floatx()) + 1.0
        return self.peak * ops.minimum(step / self.warmup, ops.sqrt(self.warmup / step))

    def get_config(self):
        return {"peak": self.peak, "warmup": self.warmup}


def optimizer():
    return keras.optimizers.Adam(Noam(), beta_1=0.9, beta_2=0.98, epsilon=1e-9)


def build():
    model = Diarizer(name="diarizer")
    model(
        {
            "features": np.zeros((1, FRAMES, MELS), keras.config.floatx()),
            "lengths": np.full((1,), FRAMES, "int32"),
        }
    )
    return model
