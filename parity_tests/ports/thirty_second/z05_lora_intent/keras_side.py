import keras
from keras import layers, ops


class LoRADense(layers.Layer):
    def __init__(self, units, rank=4, alpha=8.0, activation=None, **kw):
        super().__init__(**kw)
        self.units, self.rank, self.scale = units, rank, alpha / rank
        self.act = keras.activations.get(activation)
        self.drop = layers.Dropout(0.1)

    def build(self, shape):
        d = shape[-1]
        self.kernel = self.add_weight(
            shape=(d, self.units), initializer="glorot_uniform", trainable=False, name="kernel"
        )
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", trainable=False, name="bias")
        self.lora_a = self.add_weight(shape=(d, self.rank), initializer="he_uniform", name="lora_a")
        self.lora_b = self.add_weight(shape=(self.rank, self.units), initializer="zeros", name="lora_b")

    def call(self, x, training=None):
        base = ops.matmul(x, self.kernel) + self.bias
        delta = ops.matmul(ops.matmul(self.drop(x, training=training), self.lora_a), self.lora_b)
        return self.act(base + self.scale * delta)


def build():
    ids = keras.Input((12,), dtype="int32", name="input_ids")
    emb = layers.Embedding(50, 16, name="backbone_embedding")
    emb.trainable = False
    x = emb(ids)
    norm = layers.LayerNormalization(name="backbone_norm")
    norm.trainable = False
    x = norm(x)
    h = LoRADense(24, activation="gelu", name="ffn_in")(x)
    h = LoRADense(16, name="ffn_out")(h)
    x = layers.Add()([x, h])
    x = layers.GlobalMaxPooling1D()(x)
    out = layers.Dense(6, name="intent_head")(x)
    return keras.Model(ids, out)


def loss(y_true, y_pred):
    return ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True))
