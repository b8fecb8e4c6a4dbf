import keras
import numpy as np
from keras import layers, ops

PATCH, DIM, HEADS, KEY_DIM, DEPTH, CLASSES = 6, 40, 4, 16, 2, 6
MEAN = np.float32([0.46, 0.45, 0.44])
STD = np.float32([0.25, 0.25, 0.26])


def loss(y_true, logits):
    target = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), CLASSES, dtype=logits.dtype)
    return keras.losses.categorical_crossentropy(target, logits, from_logits=True, label_smoothing=0.1)


def optimizer():
    opt = keras.optimizers.AdamW(learning_rate=2e-3, weight_decay=0.8, beta_2=0.98, epsilon=1e-8)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt


class LayerScale(layers.Layer):
    def __init__(self, init, **kw):
        super().__init__(**kw)
        self.init = init

    def build(self, shape):
        self.scale = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(self.init), name="scale"
        )

    def call(self, x):
        return x * self.scale


class Tokens(layers.Layer):
    def build(self, shape):
        self.cls = self.add_weight(
            shape=(1, 1, shape[-1]), initializer=keras.initializers.RandomNormal(stddev=0.02), name="cls"
        )
        self.pos = self.add_weight(
            shape=(1, shape[1] + 1, shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="pos",
        )

    def call(self, x):
        cls = ops.repeat(self.cls, ops.shape(x)[0], axis=0)
        return ops.concatenate([cls, x], axis=1) + self.pos


def block(x, i):
    h = layers.LayerNormalization(epsilon=1e-6, name=f"ln1_{i}")(x)
    h = layers.MultiHeadAttention(HEADS, KEY_DIM, use_bias=False, name=f"mha_{i}")(h, h)
    x = layers.Add()([x, LayerScale(0.5, name=f"ls1_{i}")(h)])
    h = layers.LayerNormalization(epsilon=1e-6, name=f"ln2_{i}")(x)
    h = layers.Dense(2 * DIM, activation="gelu", name=f"mlp1_{i}")(h)
    h = layers.Dense(DIM, name=f"mlp2_{i}")(h)
    return layers.Add()([x, LayerScale(0.5, name=f"ls2_{i}")(h)])


def build():
    image = keras.Input((24, 24, 3), name="image")
    x = layers.Normalization(mean=MEAN, variance=STD**2, name="standardize")(image)
    x = layers.Conv2D(DIM, PATCH, strides=PATCH, name="patches")(x)
    x = Tokens(name="tokens")(layers.Reshape((-1, DIM))(x))
    for i in range(DEPTH):
        x = block(x, i)
    x = layers.LayerNormalization(epsilon=1e-6, name="ln")(x)
    return keras.Model(image, layers.Dense(CLASSES, name="classifier")(x[:, 0]))
