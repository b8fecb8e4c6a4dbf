import keras
from keras import layers, ops

VOCAB, LENGTH, WIDTH, HEADS, INTENTS = 50, 14, 32, 4, 6


@keras.saving.register_keras_serializable()
class TokenPosition(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.token = layers.Embedding(VOCAB, WIDTH)
        self.position = layers.Embedding(LENGTH, WIDTH)

    def call(self, ids):
        return self.token(ids) * WIDTH**0.5 + self.position(ops.arange(LENGTH))


def encoder(x, visible):
    h = layers.LayerNormalization(epsilon=1e-6)(x)
    h = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(h, h, attention_mask=visible)
    x = x + h
    h = layers.LayerNormalization(epsilon=1e-6)(x)
    h = layers.Dense(48, activation="gelu")(h)
    return x + layers.Dense(WIDTH)(h)


def build():
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    real = ops.not_equal(ids, 0)
    visible = ops.expand_dims(real, 1)

    x = TokenPosition()(ids)
    for _ in range(2):
        x = encoder(x, visible)
    x = layers.LayerNormalization(epsilon=1e-6)(x)

    pooled = ops.max(ops.where(ops.expand_dims(real, -1), x, -1e4), axis=1)
    logits = layers.Dense(INTENTS)(pooled)
    return keras.Model(ids, logits)
