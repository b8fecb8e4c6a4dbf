import keras
from keras import layers, ops

VOCAB, LENGTH, WIDTH, HEADS, DEPTH = 20, 12, 24, 3, 2


@keras.saving.register_keras_serializable("char")
class Block(layers.Layer):
    def __init__(self, width, heads, rate, **kwargs):
        super().__init__(**kwargs)
        self.ln_1 = layers.LayerNormalization(epsilon=1e-5, name="ln_1")
        self.attn = layers.MultiHeadAttention(heads, width // heads, name="attn")
        self.ln_2 = layers.LayerNormalization(epsilon=1e-5, name="ln_2")
        self.fc = layers.Dense(4 * width, activation="gelu", name="fc")
        self.proj = layers.Dense(width, name="proj")
        self.drop_1 = layers.Dropout(rate)
        self.drop_2 = layers.Dropout(rate)

    def build(self, shape):
        self.ln_1.build(shape)
        self.attn.build(shape, shape)
        self.ln_2.build(shape)
        self.fc.build(shape)
        self.proj.build((*shape[:-1], self.fc.units))
        self.built = True

    def call(self, x, training=None):
        h = self.ln_1(x)
        x = x + self.drop_1(self.attn(h, h, use_causal_mask=True), training=training)
        h = self.proj(self.fc(self.ln_2(x)))
        return x + self.drop_2(h, training=training)


class CharGPT(keras.Model):
    def __init__(self):
        super().__init__()
        self.wte = layers.Embedding(
            VOCAB, WIDTH, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.2), name="wte"
        )
        self.wpe = layers.Embedding(LENGTH, WIDTH, name="wpe")
        self.blocks = [Block(WIDTH, HEADS, 0.1, name=f"block_{i}") for i in range(DEPTH)]
        self.ln_f = layers.LayerNormalization(epsilon=1e-5, name="ln_f")

    def call(self, tokens, training=None):
        x = self.wte(tokens) + self.wpe(ops.arange(LENGTH))
        for block in self.blocks:
            x = block(x, training=training)
        return ops.matmul(self.ln_f(x), ops.transpose(self.wte.embeddings))


def optimizer():
    opt = keras.optimizers.AdamW(3e-3, weight_decay=0.05, beta_2=0.95)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "embeddings"])
    return opt
