"""Named-entity tagger on characters: char-CNN + highway -> BiLSTM -> CRF.

x: (words, characters) ids, 0 pads both. y: tag per word, -1 for padding.
"""

import keras
import tensorflow as tf
from keras import layers, ops

WORDS, CHARS, ALPHABET, TAGS = 10, 8, 30, 5
L2 = 1e-3


class Highway(layers.Layer):
    def __init__(self, dim, **kw):
        super().__init__(**kw)
        reg = keras.regularizers.L2(L2)
        self.h = layers.Dense(dim, activation="relu", kernel_regularizer=reg, name="h")
        self.t = layers.Dense(
            dim,
            activation="sigmoid",
            kernel_regularizer=reg,
            bias_initializer=keras.initializers.Constant(-1.0),
            name="t",
        )

    def build(self, shape):
        self.h.build(shape)
        self.t.build(shape)

    def call(self, x):
        t = self.t(x)
        return t * self.h(x) + (1.0 - t) * x


class CRF(layers.Layer):
    def build(self, shape):
        self.start = self.add_weight(name="start", shape=(TAGS,), initializer="zeros")
        self.end = self.add_weight(name="end", shape=(TAGS,), initializer="zeros")
        self.transitions = self.add_weight(
            name="transitions", shape=(TAGS, TAGS), initializer=keras.initializers.RandomUniform(-0.1, 0.1)
        )

    def call(self, emissions):
        return emissions

    def loss(self, y_true, emissions):
        """Negative log-likelihood, mean over sentences."""
        y_true = ops.cast(y_true, "int32")
        keep = ops.cast(y_true >= 0, emissions.dtype)
        tags = ops.maximum(y_true, 0)
        hot = ops.one_hot(tags, TAGS, dtype=emissions.dtype) * keep[..., None]
        # score of the given path
        score = ops.sum(hot * emissions, axis=(1, 2)) + ops.matmul(hot[:, 0], self.start)
        pairs = ops.einsum("bti,ij,btj->bt", hot[:, :-1], self.transitions, hot[:, 1:])
        score = score + ops.sum(pairs, axis=1)
        following = ops.concatenate([keep[:, 1:], ops.zeros_like(keep[:, :1])], axis=1)
        last = hot * (keep * (1.0 - following))[..., None]
        score = score + ops.einsum("bti,i->b", last, self.end)
        # all paths
        alpha = self.start + emissions[:, 0]
        for t in range(1, WORDS):
            new = ops.logsumexp(alpha[:, :, None] + self.transitions[None], axis=1) + emissions[:, t]
            alpha = ops.where(keep[:, t][:, None] > 0, new, alpha)
        log_z = ops.logsumexp(alpha + self.end, axis=-1)
        return ops.mean(log_z - score)


class CharTagger(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.embed = layers.Embedding(ALPHABET, 8, name="char_embed")
        self.convs = [layers.Conv1D(f, k, activation="tanh", name=f"conv{k}") for k, f in ((2, 6), (3, 8))]
        self.highway = Highway(14, name="highway")
        self.rnn = layers.Bidirectional(layers.LSTM(10, return_sequences=True), name="rnn")
        self.emit = layers.Dense(TAGS, name="emit")
        self.crf = CRF(name="crf")

    def call(self, x):
        real = ops.not_equal(x, 0)
        word = ops.any(real, axis=-1)
        c = self.embed(x) * ops.cast(real, self.compute_dtype)[..., None]
        c = ops.reshape(c, (-1, CHARS, 8))
        w = ops.concatenate([ops.max(conv(c), axis=1) for conv in self.convs], axis=-1)
        w = self.highway(ops.reshape(w, (-1, WORDS, 14)))
        h = self.rnn(w, mask=word)
        h = h * ops.cast(word, self.compute_dtype)[..., None]
        return self.crf(self.emit(h))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            emissions = self(x, training=True)
            loss = self.crf.loss(y, emissions) + sum(self.losses)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def build():
    model = CharTagger(name="char_crf")
    model(ops.zeros((1, WORDS, CHARS), dtype="int32"))
    model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.05, momentum=0.9), loss=model.crf.loss)
    return model
