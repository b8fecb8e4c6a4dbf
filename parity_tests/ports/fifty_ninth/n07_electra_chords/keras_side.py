"""ELECTRA on chord progressions: a small generator fills masked chords, a discriminator finds the replaced ones."""

import keras
import tensorflow as tf
from keras import layers, ops

VOCAB = 28  # 0 is padding, 1 the mask
LENGTH = 16
EMBED = 12
DISC_WEIGHT = 20.0


class EncoderLayer(layers.Layer):
    """Post-norm transformer layer."""

    def __init__(self, width, heads, inner, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, width // heads, name="attention")
        self.attention_norm = layers.LayerNormalization(epsilon=1e-6, name="attention_norm")
        self.inner = layers.Dense(inner, activation="relu", name="inner")
        self.outer = layers.Dense(width, name="outer")
        self.outer_norm = layers.LayerNormalization(epsilon=1e-6, name="outer_norm")

    def call(self, x, key_mask):
        x = self.attention_norm(x + self.attention(x, x, attention_mask=key_mask[:, None, :]))
        return self.outer_norm(x + self.outer(self.inner(x)))


class Electra(keras.Model):
    def __init__(self):
        super().__init__(name="electra")
        self.words = layers.Embedding(VOCAB, EMBED, name="words")
        self.places = layers.Embedding(LENGTH, EMBED, name="places")
        self.word_bias = self.add_weight(name="word_bias", shape=(VOCAB,), initializer="zeros")
        self.embed_norm = layers.LayerNormalization(epsilon=1e-6, name="embed_norm")
        self.gen_in = layers.Dense(8, name="gen_in")
        self.gen_layers = [EncoderLayer(8, 2, 16, name=f"gen_{i}") for i in range(2)]
        self.gen_back = layers.Dense(EMBED, activation="relu", name="gen_back")
        self.gen_norm = layers.LayerNormalization(epsilon=1e-6, name="gen_norm")
        self.disc_in = layers.Dense(20, name="disc_in")
        self.disc_layers = [EncoderLayer(20, 5, 32, name=f"disc_{i}") for i in range(3)]
        self.disc_hidden = layers.Dense(20, activation="relu", name="disc_hidden")
        self.disc_out = layers.Dense(1, name="disc_out")

    def embed(self, tokens):
        return self.embed_norm(self.words(tokens) + self.places(ops.arange(LENGTH))[None])

    def fill(self, tokens, real):
        x = self.gen_in(self.embed(tokens))
        for layer in self.gen_layers:
            x = layer(x, real)
        x = self.gen_norm(self.gen_back(x))
        return ops.matmul(x, ops.transpose(self.words.embeddings)) + self.word_bias

    def judge(self, tokens, real):
        x = self.disc_in(self.embed(tokens))
        for layer in self.disc_layers:
            x = layer(x, real)
        return self.disc_out(self.disc_hidden(x))[..., 0]

    def both(self, inputs):
        tokens = ops.cast(inputs["tokens"], "int32")
        real = ops.not_equal(tokens, 0)
        hidden = ops.equal(tokens, 1)
        logits = self.fill(tokens, real)
        drawn = ops.argmax(ops.stop_gradient(logits) + inputs["gumbel"], axis=-1)
        filled = ops.where(hidden, ops.cast(drawn, "int32"), tokens)
        return logits, filled, self.judge(filled, real), real, hidden

    def call(self, inputs):
        return self.both(inputs)[2]

    def objective(self, inputs, original):
        original = ops.cast(original, "int32")
        logits, filled, verdict, real, hidden = self.both(inputs)
        real, hidden = ops.cast(real, logits.dtype), ops.cast(hidden, logits.dtype)

        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=original, logits=logits)
        gen_loss = ops.sum(entropy * hidden, axis=-1) / ops.maximum(ops.sum(hidden, axis=-1), 1.0)

        replaced = ops.cast(ops.not_equal(filled, original), logits.dtype)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=replaced, logits=verdict)
        disc_loss = ops.sum(entropy * real, axis=-1) / ops.sum(real, axis=-1)
        return ops.mean(gen_loss + DISC_WEIGHT * disc_loss)

    def train_step(self, data):
        inputs, original = data
        with tf.GradientTape() as tape:
            value = self.objective(inputs, original)
        gradients = tape.gradient(value, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": value}


def build():
    return Electra()
