"""Claims: whether one is filed and how large it is, from columns as tokens of a small transformer."""

import keras
from keras import layers, ops

NUMBERS, CODES, DIM = 6, (5, 9, 14), 24


@keras.saving.register_keras_serializable("claims")
class ColumnTokens(layers.Layer):
    def build(self, numbers_shape, codes_shape):
        self.scale = self.add_weight(shape=(NUMBERS, DIM), initializer="glorot_uniform", name="scale")
        self.offset = self.add_weight(shape=(NUMBERS, DIM), initializer="zeros", name="offset")
        self.summary = self.add_weight(shape=(1, DIM), initializer="glorot_uniform", name="summary")
        self.tables = [
            self.add_weight(shape=(size, DIM), initializer="glorot_uniform", name=f"table_{i}")
            for i, size in enumerate(CODES)
        ]

    def call(self, numbers, codes):
        parts = [ops.broadcast_to(self.summary, (ops.shape(numbers)[0], 1, DIM))]
        parts.append(numbers[..., None] * self.scale + self.offset)
        parts += [ops.take(table, codes[:, i], axis=0)[:, None] for i, table in enumerate(self.tables)]
        return ops.concatenate(parts, axis=1)


@keras.saving.register_keras_serializable("claims")
class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm1 = layers.LayerNormalization(epsilon=1e-5, name="norm1")
        self.attention = layers.MultiHeadAttention(4, DIM // 4, dropout=0.1, name="attention")
        self.norm2 = layers.LayerNormalization(epsilon=1e-5, name="norm2")
        self.up = layers.Dense(48, activation="gelu", name="up")
        self.dropout = layers.Dropout(0.1)
        self.down = layers.Dense(DIM, name="down")

    def call(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y)
        y = self.norm2(x)
        return x + self.down(self.dropout(self.up(y)))


@keras.saving.register_keras_serializable("claims")
class Claims(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tokens = ColumnTokens(name="tokens")
        self.blocks = [Block(name=f"block_{i}") for i in range(2)]
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.filed = layers.Dense(1, name="filed")
        self.amount = layers.Dense(1, name="amount")

    def call(self, inputs):
        x = self.tokens(inputs["numbers"], inputs["codes"])
        for block in self.blocks:
            x = block(x)
        x = ops.relu(self.norm(x[:, 0]))
        return {"filed": self.filed(x), "amount": self.amount(x)}


class FiledLoss(keras.losses.Loss):
    """Binary cross-entropy of logits."""

    def call(self, y_true, y_pred):
        y_true = ops.cast(y_true, y_pred.dtype)
        return keras.losses.binary_crossentropy(y_true, y_pred, from_logits=True)


class AmountLoss(keras.losses.Loss):
    """Log-cosh, flat enough for the large claims."""

    def call(self, y_true, y_pred):
        return keras.losses.log_cosh(y_true, y_pred)


filed_loss = FiledLoss()
amount_loss = AmountLoss()


def build():
    return Claims(name="claims")
