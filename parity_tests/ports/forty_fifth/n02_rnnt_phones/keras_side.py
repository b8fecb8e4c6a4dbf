"""RNN transducer for phones: causal encoder with time reduction, label predictor, joint network, transducer loss."""

import keras
import tensorflow as tf
from keras import layers, ops

FRAMES, MELS, LABELS, PHONES = 36, 20, 7, 14  # phone 0 is blank
BLANK = 0


class UtteranceNorm(layers.Layer):
    """Cepstral mean and variance normalisation over the frames that are there."""

    def call(self, features, lengths):
        there = ops.cast(
            ops.arange(features.shape[1], dtype="int32")[None, :] < lengths[:, None], features.dtype
        )[..., None]
        count = ops.sum(there, axis=1, keepdims=True)
        mean = ops.sum(features * there, axis=1, keepdims=True) / count
        centred = (features - mean) * there
        variance = ops.sum(ops.square(centred), axis=1, keepdims=True) / count
        return centred / ops.sqrt(variance + 1e-5)


class Transducer(keras.Model):
    def __init__(self, units=48, joint=40, **kwargs):
        super().__init__(**kwargs)
        self.normalise = UtteranceNorm()
        self.front = layers.Conv1D(32, 3, padding="causal", activation="relu", name="front")
        self.lower = layers.GRU(units, return_sequences=True, name="lower")
        self.lower_norm = layers.LayerNormalization(name="lower_norm")
        self.reduce = layers.Reshape((FRAMES // 2, 2 * units))
        self.upper = layers.GRU(units, return_sequences=True, name="upper")
        self.upper_norm = layers.LayerNormalization(name="upper_norm")
        self.embed = layers.Embedding(PHONES, 24, name="embed")
        self.predict_rnn = layers.GRU(units, return_sequences=True, name="predictor")
        self.from_encoder = layers.Dense(joint, name="from_encoder")
        self.from_predictor = layers.Dense(joint, use_bias=False, name="from_predictor")
        self.out = layers.Dense(PHONES, name="out")

    def call(self, inputs, training=None):
        features, frames, labels = unpack(inputs, ("features", "frames", "labels"))
        frames, labels = ops.cast(frames, "int32"), ops.cast(labels, "int32")
        x = self.front(self.normalise(features, frames))
        x = self.lower_norm(self.lower(x))
        x = self.upper_norm(self.upper(self.reduce(x)))
        start = ops.pad(labels, ((0, 0), (1, 0)), constant_values=BLANK)
        p = self.predict_rnn(self.embed(start))
        joined = ops.tanh(self.from_encoder(x)[:, :, None] + self.from_predictor(p)[:, None])
        return ops.log_softmax(self.out(joined), axis=-1)

    def train_step(self, data):
        inputs, labels = data
        _, frames, _ = unpack(inputs, ("features", "frames", "labels"))
        with tf.GradientTape() as tape:
            log_probs = self(inputs, training=True)
            loss = transducer_loss(log_probs, labels, frames)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def unpack(inputs, names):
    return [inputs[n] for n in names] if isinstance(inputs, dict) else list(inputs)


def transducer_loss(log_probs, labels, frames):
    """Mean over the utterances of -log p(labels) / number of labels, summed over all alignments.

    Runs over the frames; in each, the emissions along the labels are a cumulative log-sum.
    """
    labels = ops.cast(labels, "int32")
    steps = (ops.cast(frames, "int32") + 1) // 2
    count = ops.sum(ops.cast(labels != BLANK, "int32"), axis=1)
    blank = log_probs[..., BLANK]
    onehot = ops.one_hot(labels, PHONES, dtype=log_probs.dtype)
    emit = ops.sum(log_probs[:, :, :-1] * onehot[:, None], axis=-1)
    along = ops.pad(ops.cumsum(emit, axis=2), ((0, 0), (0, 0), (1, 0)))

    alpha = along[:, 0]
    ends = [alpha + blank[:, 0]]
    for t in range(1, log_probs.shape[1]):
        stay = alpha + blank[:, t - 1]
        alpha = along[:, t] + tf.math.cumulative_logsumexp(stay - along[:, t], axis=1)
        ends.append(alpha + blank[:, t])
    ends = ops.stack(ends, axis=1)
    last = ops.one_hot(steps - 1, ends.shape[1], dtype=ends.dtype)[:, :, None]
    final = ops.one_hot(count, ends.shape[2], dtype=ends.dtype)[:, None, :]
    log_likelihood = ops.sum(ends * last * final, axis=(1, 2))
    return -ops.mean(log_likelihood / ops.cast(count, ends.dtype))


def build():
    model = Transducer(name="transducer")
    model(
        {
            "features": ops.zeros((1, FRAMES, MELS)),
            "frames": ops.full((1,), FRAMES, dtype="int32"),
            "labels": ops.ones((1, LABELS), dtype="int32"),
        }
    )
    return model
