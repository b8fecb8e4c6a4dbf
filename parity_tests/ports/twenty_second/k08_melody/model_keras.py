import keras
from keras import layers, ops


class Melody(keras.Model):
    def __init__(self, notes=18, steps=12, dim=16, heads=4):
        super().__init__()
        self.dim, self.steps = dim, steps
        self.note = layers.Embedding(notes, dim)
        self.place = layers.Embedding(steps, dim)
        self.ln1 = layers.LayerNormalization()
        self.att = layers.MultiHeadAttention(heads, dim // heads)
        self.ln2 = layers.LayerNormalization()
        self.ff = keras.Sequential([layers.Dense(32, activation="gelu"), layers.Dense(dim)])
        self.ln3 = layers.LayerNormalization()

    def call(self, tokens):
        h = self.note(tokens) * self.dim**0.5 + self.place(ops.arange(self.steps))
        a = self.ln1(h)
        h = h + self.att(a, a, use_causal_mask=True)
        h = h + self.ff(self.ln2(h))
        return ops.matmul(self.ln3(h), ops.transpose(self.note.embeddings))


def token_loss(y_true, y_pred):
    real = ops.cast(ops.not_equal(y_true, 0), y_pred.dtype)
    ce = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    return ops.sum(ce * real) / ops.sum(real)


def build():
    model = Melody()
    model(ops.ones((1, 12), dtype="int32"))
    return model
