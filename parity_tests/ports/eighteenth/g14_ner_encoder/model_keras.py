import keras
from keras import layers, ops


class Embeddings(layers.Layer):
    def __init__(self, vocab, length, dim, rate, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.word = layers.Embedding(vocab, dim, name="word")
        self.position = layers.Embedding(length, dim, name="position")
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")
        self.drop = layers.Dropout(rate)

    def call(self, tokens):
        positions = ops.arange(tokens.shape[1])
        x = self.word(tokens) * self.dim**0.5 + self.position(positions)
        return self.drop(self.norm(x))


class EncoderLayer(layers.Layer):
    def __init__(self, dim, heads, inner, rate, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, dim // heads, dropout=rate, name="attention")
        self.norm1 = layers.LayerNormalization(epsilon=1e-6, name="norm1")
        self.inner = layers.Dense(inner, activation="gelu", name="inner")
        self.outer = layers.Dense(dim, name="outer")
        self.norm2 = layers.LayerNormalization(epsilon=1e-6, name="norm2")
        self.drop1 = layers.Dropout(rate)
        self.drop2 = layers.Dropout(rate)

    def call(self, x, mask):
        a = self.attention(x, x, attention_mask=mask[:, None, :])
        x = self.norm1(x + self.drop1(a))
        return self.norm2(x + self.drop2(self.outer(self.inner(x))))


class Tagger(keras.Model):
    def __init__(self, vocab=50, length=12, dim=16, heads=2, inner=24, depth=2, tags=5, rate=0.1):
        super().__init__()
        self.embeddings = Embeddings(vocab, length, dim, rate, name="embeddings")
        self.encoder = [EncoderLayer(dim, heads, inner, rate, name=f"layer_{i}") for i in range(depth)]
        self.classifier = layers.Dense(tags, name="classifier")

    def call(self, tokens):
        mask = ops.not_equal(tokens, 0)
        x = self.embeddings(tokens)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.classifier(x)


def build():
    return Tagger()


def token_loss(y_true, y_pred):
    """mean over the real tokens; padding is tagged -1"""
    real = ops.cast(y_true >= 0, y_pred.dtype)
    tags = ops.maximum(ops.cast(y_true, "int32"), 0)
    each = keras.losses.sparse_categorical_crossentropy(tags, y_pred, from_logits=True)
    return ops.sum(each * real) / ops.sum(real)
