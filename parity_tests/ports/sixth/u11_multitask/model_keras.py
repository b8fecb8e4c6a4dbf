import keras
from keras import layers, ops

CATEGORIES = (7, 12, 3)
NUMBERS = 5
WIDTH, HEADS = 24, 3


class Tokens(layers.Layer):
    """One token a column, and one that the heads read."""

    def build(self, codes_shape, numbers_shape):
        self.table = self.add_weight(
            shape=(sum(CATEGORIES), WIDTH), initializer="random_normal", name="table"
        )
        self.slope = self.add_weight(shape=(NUMBERS, WIDTH), initializer="random_normal", name="slope")
        self.offset = self.add_weight(
            shape=(NUMBERS + len(CATEGORIES), WIDTH), initializer="random_normal", name="offset"
        )
        self.reader = self.add_weight(shape=(1, WIDTH), initializer="random_normal", name="reader")

    def call(self, codes, numbers):
        first = [sum(CATEGORIES[:i]) for i in range(len(CATEGORIES))]
        a = ops.take(self.table, codes + ops.convert_to_tensor(first, dtype="int32"), axis=0)
        b = numbers[..., None] * self.slope
        x = ops.concatenate([a, b], axis=1) + self.offset
        reader = ops.broadcast_to(self.reader, (ops.shape(x)[0], 1, WIDTH))
        return ops.concatenate([reader, x], axis=1)


def encoder(x, name):
    h = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    h = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1, name=f"{name}_attention")(h, h)
    x = layers.Add()([x, h])
    h = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    h = layers.Dense(48, activation="relu", name=f"{name}_up")(h)
    h = layers.Dense(WIDTH, name=f"{name}_down")(layers.Dropout(0.1)(h))
    return layers.Add()([x, h])


def build():
    codes = keras.Input((len(CATEGORIES),), dtype="int32", name="codes")
    numbers = keras.Input((NUMBERS,), name="numbers")
    x = Tokens(name="tokens")(codes, numbers)
    for i in range(2):
        x = encoder(x, f"encoder{i}")
    x = layers.LayerNormalization(epsilon=1e-6, name="last_norm")(x)[:, 0]
    return keras.Model(
        [codes, numbers],
        {
            "churn": layers.Dense(1, name="churn")(x),
            "spend": layers.Dense(1, activation="softplus", name="spend")(x),
            "segment": layers.Dense(4, name="segment")(x),
        },
    )
