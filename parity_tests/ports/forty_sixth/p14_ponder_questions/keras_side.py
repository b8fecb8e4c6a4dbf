"""A universal transformer with adaptive computation time that answers short questions; each word ponders as long as it needs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

LENGTH, WORDS, CLASSES = 16, 120, 6
WIDTH, HEADS, DEPTH = 32, 2, 5
THRESHOLD, PONDER_COST = 0.99, 0.02


def signal(length, width):
    rates = np.exp(-np.log(1e4) * np.arange(width // 2) / (width // 2 - 1))
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)


POSITIONS, MOMENTS = signal(LENGTH, WIDTH), signal(DEPTH, WIDTH)


@keras.saving.register_keras_serializable("ponder")
class PonderEncoder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name="attention")
        self.norm1 = layers.LayerNormalization(epsilon=1e-6, name="norm1")
        self.expand = layers.Dense(2 * WIDTH, activation="silu", name="expand")
        self.contract = layers.Dense(WIDTH, name="contract")
        self.norm2 = layers.LayerNormalization(epsilon=1e-6, name="norm2")
        self.halt = layers.Dense(
            1, activation="sigmoid", bias_initializer=keras.initializers.Constant(0.5), name="halt"
        )

    def build(self, shape):
        shape = tuple(shape)
        self.attention.build(shape, shape)
        self.norm1.build(shape)
        self.expand.build(shape)
        self.contract.build(shape[:-1] + (2 * WIDTH,))
        self.norm2.build(shape)
        self.halt.build(shape)

    def transition(self, x, allowed):
        x = self.norm1(x + self.attention(x, x, attention_mask=allowed))
        return self.norm2(x + self.contract(self.expand(x)))

    def call(self, state, real):
        dtype = state.dtype
        state = state * WIDTH**0.5
        allowed = ops.expand_dims(real, 1)
        halting = 1.0 - ops.cast(real, dtype)
        remainders, updates = ops.zeros_like(halting), ops.zeros_like(halting)
        average = ops.zeros_like(state)
        for t in range(DEPTH):
            state = state + ops.cast(POSITIONS + MOMENTS[t], dtype)
            p = ops.squeeze(self.halt(state), -1)
            running = ops.cast(halting < 1.0, dtype)
            stops = ops.cast(halting + p * running > THRESHOLD, dtype) * running
            goes_on = running - stops
            halting = halting + p * goes_on
            remainders = remainders + stops * (1.0 - halting)
            halting = halting + stops * remainders
            updates = updates + running
            share = ops.expand_dims(p * goes_on + stops * remainders, -1)
            state = self.transition(state, allowed)
            average = state * share + average * (1.0 - share)
        return average, updates + remainders


@keras.saving.register_keras_serializable("ponder")
class PonderModel(keras.Model):
    def train_step(self, data):
        tokens, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            logits, ponder = self(tokens, training=True)
            answers = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            loss = tf.reduce_mean(answers) + PONDER_COST * tf.reduce_mean(ponder)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def build():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    real = ops.not_equal(tokens, 0)
    x = layers.Embedding(WORDS, WIDTH, name="words")(tokens)
    x, ponder = PonderEncoder(name="encoder")(x, real)
    weight = ops.cast(real, x.dtype)
    count = ops.sum(weight, axis=1, keepdims=True)
    pooled = ops.sum(x * ops.expand_dims(weight, -1), axis=1) / count
    logits = layers.Dense(CLASSES, name="answer")(pooled)
    return PonderModel(tokens, (logits, ops.sum(ponder * weight, axis=1, keepdims=True) / count))


def optimizer():
    rate = keras.optimizers.schedules.ExponentialDecay(0.02, decay_steps=15, decay_rate=0.5, staircase=True)
    return keras.optimizers.Adagrad(rate, initial_accumulator_value=0.1, epsilon=1e-12)
