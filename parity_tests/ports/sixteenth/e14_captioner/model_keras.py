"""Show, attend and tell (Xu et al. 2015): captions of pictures from a grid of features, trained with the right words."""

import keras
import tensorflow as tf
from keras import layers, ops


class Captioner(keras.Model):
    def __init__(self, words=10, embedding=12, hidden=16, attention=11, coverage=0.7):
        super().__init__()
        self.coverage = coverage
        self.embedding = layers.Embedding(words, embedding, name="embedding")
        self.first_h = layers.Dense(hidden, activation="tanh", name="first_h")
        self.first_c = layers.Dense(hidden, activation="tanh", name="first_c")
        self.attend_features = layers.Dense(attention, name="attend_features")
        self.attend_state = layers.Dense(attention, use_bias=False, name="attend_state")
        self.attend_score = layers.Dense(1, use_bias=False, name="attend_score")
        self.gate = layers.Dense(1, activation="sigmoid", name="gate")
        self.cell = layers.LSTMCell(hidden, name="cell")
        self.from_context = layers.Dense(embedding, use_bias=False, name="from_context")
        self.from_state = layers.Dense(embedding, name="from_state")
        self.to_words = layers.Dense(words, name="to_words")
        self.dropout = layers.Dropout(0.3)
        self.loss_metric = keras.metrics.Mean(name="loss")

    def unroll(self, features, words, training):
        keys = self.attend_features(features)
        mean = ops.mean(features, axis=1)
        state = [self.first_h(mean), self.first_c(mean)]
        embedded = self.embedding(words)
        logits, alphas = [], []
        for t in range(words.shape[1]):
            scores = self.attend_score(ops.tanh(keys + self.attend_state(state[0])[:, None]))
            alpha = ops.softmax(scores, axis=1)
            context = self.gate(state[0]) * ops.sum(alpha * features, axis=1)
            h, state = self.cell(ops.concatenate([embedded[:, t], context], -1), state)
            deep = (
                embedded[:, t]
                + self.from_state(self.dropout(h, training=training))
                + self.from_context(context)
            )
            logits.append(self.to_words(ops.tanh(deep)))
            alphas.append(alpha[..., 0])
        return ops.stack(logits, 1), ops.stack(alphas, 1)

    def call(self, inputs, training=False):
        return self.unroll(inputs["features"], inputs["words"], training)[0]

    def train_step(self, data):
        inputs, y = data
        with tf.GradientTape() as tape:
            logits, alphas = self.unroll(inputs["features"], inputs["words"], True)
            real = ops.cast(y > 0, logits.dtype)
            entropy = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
            loss = ops.sum(entropy * real) / ops.sum(real)
            # each place shall be looked at once, in the words that there are
            seen = ops.sum(alphas * real[..., None], axis=1)
            loss = loss + self.coverage * ops.mean(ops.square(1 - seen))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.loss_metric.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


def build():
    model = Captioner()
    model.compile(optimizer=keras.optimizers.Adam(4e-3))
    return model
