"""Named-entity tagger: BiLSTM emissions under a linear-chain CRF."""

import keras
import tensorflow as tf
from keras import layers, ops


class EntityTagger(keras.Model):
    def __init__(self, vocabulary=40, tags=5, dim=16, units=12, **kwargs):
        super().__init__(**kwargs)
        self.tags = tags
        self.embed = layers.Embedding(vocabulary, dim, mask_zero=True)
        self.rnn = layers.Bidirectional(layers.LSTM(units, return_sequences=True))
        self.emit = layers.Dense(tags)
        self.transitions = self.add_weight(
            name="transitions", shape=(tags, tags), initializer="glorot_uniform"
        )
        self.start = self.add_weight(
            name="start", shape=(tags,), initializer=keras.initializers.RandomNormal(stddev=0.1)
        )
        self.end = self.add_weight(
            name="end", shape=(tags,), initializer=keras.initializers.RandomNormal(stddev=0.1)
        )
        self.nll = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.nll]

    def call(self, tokens, training=False):
        mask = self.embed.compute_mask(tokens)
        h = self.rnn(self.embed(tokens), mask=mask, training=training)
        return self.emit(h) * ops.cast(mask, h.dtype)[..., None]

    def path_score(self, emissions, tags, mask):
        m = ops.cast(mask, emissions.dtype)
        one_hot = ops.one_hot(tags, self.tags, dtype=emissions.dtype)
        emitted = ops.sum(ops.sum(emissions * one_hot, -1) * m, axis=1)
        moves = ops.einsum("bti,ij,btj->bt", one_hot[:, :-1], self.transitions, one_hot[:, 1:])
        moved = ops.sum(moves * m[:, 1:], axis=1)
        last = ops.cast(ops.sum(m, axis=1), "int32") - 1
        last_tag = tf.gather(one_hot, last, batch_dims=1)
        return (
            emitted
            + moved
            + ops.matmul(one_hot[:, 0], self.start[:, None])[:, 0]
            + ops.matmul(last_tag, self.end[:, None])[:, 0]
        )

    def partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            step = ops.logsumexp(alpha[:, :, None] + self.transitions[None], axis=1) + emissions[:, t]
            alpha = ops.where(mask[:, t, None], step, alpha)
        return ops.logsumexp(alpha + self.end, axis=1)

    def train_step(self, data):
        tokens, tags = data
        mask = ops.not_equal(tokens, 0)
        with tf.GradientTape() as tape:
            emissions = self(tokens, training=True)
            loss = ops.mean(self.partition(emissions, mask) - self.path_score(emissions, tags, mask))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.nll.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


def build():
    model = EntityTagger()
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    return model
