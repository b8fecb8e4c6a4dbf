"""Voice embeddings by the generalised end-to-end loss, with the dialect as a side task.

A sample is a speaker: UTTERANCES log-mel clips of different lengths.
"""

import keras
import tensorflow as tf
from keras import layers, ops

UTTERANCES, FRAMES, MELS = 4, 24, 20
UNITS, EMBED, DIALECTS = 32, 24, 5


class Similarity(layers.Layer):
    """Scaled cosine of each utterance with each speaker's centroid, its own taken without it."""

    def build(self, shape):
        self.w = self.add_weight(shape=(), initializer=keras.initializers.Constant(10.0), name="w")
        self.b = self.add_weight(shape=(), initializer=keras.initializers.Constant(-5.0), name="b")

    def call(self, e):
        speakers = ops.shape(e)[0]
        total = ops.sum(e, axis=1)
        centroids = ops.normalize(total / UTTERANCES, axis=-1)
        others = ops.normalize((total[:, None] - e) / (UTTERANCES - 1), axis=-1)
        cos = ops.einsum("sue,ce->suc", e, centroids)
        own = ops.sum(e * others, axis=-1, keepdims=True)
        cos = ops.where(ops.cast(ops.eye(speakers), "bool")[:, None, :], own, cos)
        return self.w * cos + self.b


class VoiceEncoder(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.similarity = Similarity(name="similarity")
        self.similarity.build((None, UTTERANCES, EMBED))
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def objective(self, x, y, training):
        out = self(x, training=training)
        scores = self.similarity(out["embedding"])
        speakers = ops.shape(scores)[0]
        labels = ops.broadcast_to(ops.arange(speakers)[:, None], (speakers, UTTERANCES))
        ge2e = ops.mean(keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True))
        dialect = ops.mean(keras.losses.sparse_categorical_crossentropy(y, out["dialect"], from_logits=True))
        return ge2e + 0.2 * dialect

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.objective(x, y, training=True)
        variables = self.trainable_variables
        slow = {id(self.similarity.w), id(self.similarity.b)}
        grads = [0.01 * g if id(v) in slow else g for g, v in zip(tape.gradient(loss, variables), variables)]
        self.optimizer.apply_gradients(zip(grads, variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    mels = keras.Input((UTTERANCES, FRAMES, MELS), name="mels")
    frames = keras.Input((UTTERANCES,), dtype="int32", name="frames")
    x = ops.reshape(mels, (-1, FRAMES, MELS))
    mask = ops.less(ops.arange(FRAMES)[None, :], ops.reshape(frames, (-1, 1)))
    x = layers.GRU(UNITS, return_sequences=True, name="gru1")(x, mask=mask)
    x = layers.GRU(UNITS, name="gru2")(x, mask=mask)
    x = layers.Dense(EMBED, activation="relu", name="embed")(x)
    e = ops.normalize(ops.reshape(x, (-1, UTTERANCES, EMBED)) + 1e-5, axis=-1)
    dialect = layers.Dense(DIALECTS, name="dialect")(ops.mean(e, axis=1))
    return VoiceEncoder(inputs=[mels, frames], outputs={"embedding": e, "dialect": dialect})
