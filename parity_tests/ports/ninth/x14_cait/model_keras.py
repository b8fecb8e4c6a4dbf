import keras
from keras import layers, ops


class Scale(layers.Layer):
    def __init__(self, value=0.1, **kwargs):
        super().__init__(**kwargs)
        self.value = value

    def build(self, shape):
        self.gamma = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(self.value), name="gamma"
        )

    def call(self, x):
        return x * self.gamma


class TalkingHeads(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.before = layers.Dense(heads, name="before")
        self.after = layers.Dense(heads, name="after")
        self.project = layers.Dense(dim, name="project")

    def call(self, x):
        n, dim = x.shape[1:]
        qkv = ops.reshape(self.qkv(x), (-1, n, 3, self.heads, dim // self.heads))
        q, k, v = ops.unstack(qkv, axis=2)
        scores = ops.einsum("bqhd,bkhd->bqkh", q, k) * (dim // self.heads) ** -0.5
        mixed = self.after(ops.softmax(self.before(scores), axis=2))
        return self.project(ops.reshape(ops.einsum("bqkh,bkhd->bqhd", mixed, v), (-1, n, dim)))


class ClassAttention(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.q = layers.Dense(dim, name="q")
        self.k = layers.Dense(dim, name="k")
        self.v = layers.Dense(dim, name="v")
        self.project = layers.Dense(dim, name="project")

    def call(self, x):
        n, dim = x.shape[1:]
        q = ops.reshape(self.q(x[:, 0]), (-1, self.heads, dim // self.heads)) * (dim // self.heads) ** -0.5
        k = ops.reshape(self.k(x), (-1, n, self.heads, dim // self.heads))
        v = ops.reshape(self.v(x), (-1, n, self.heads, dim // self.heads))
        weights = ops.softmax(ops.einsum("bhd,bkhd->bhk", q, k), axis=-1)
        return self.project(ops.reshape(ops.einsum("bhk,bkhd->bhd", weights, v), (-1, 1, dim)))


class Tokens(layers.Layer):
    def build(self, shape):
        self.position = self.add_weight(shape=(1, *shape[1:]), initializer="random_normal", name="position")

    def call(self, x):
        return x + self.position


class ClassToken(layers.Layer):
    def build(self, shape):
        self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="random_normal", name="token")

    def call(self, x):
        return ops.repeat(self.token, ops.shape(x)[0], axis=0)


def mlp(x, dim, name):
    x = layers.Dense(2 * dim, activation="gelu", name=f"{name}_fc1")(x)
    return layers.Dense(dim, name=f"{name}_fc2")(x)


def norm(x, name):
    return layers.LayerNormalization(epsilon=1e-6, name=name)(x)


def build(dim=16, heads=4, classes=5):
    inputs = keras.Input((9, 12), name="patches")
    x = Tokens(name="tokens")(layers.Dense(dim, name="embed")(inputs))
    for i in range(2):
        h = TalkingHeads(dim, heads, name=f"attention{i}")(norm(x, f"norm1_{i}"))
        x = x + Scale(name=f"scale1_{i}")(h)
        x = x + Scale(name=f"scale2_{i}")(mlp(norm(x, f"norm2_{i}"), dim, f"mlp{i}"))
    cls = ClassToken(name="cls")(x)
    for i in range(2):
        both = layers.Concatenate(axis=1)([cls, x])
        h = ClassAttention(dim, heads, name=f"class_attention{i}")(norm(both, f"class_norm1_{i}"))
        cls = cls + Scale(name=f"class_scale1_{i}")(h)
        cls = cls + Scale(name=f"class_scale2_{i}")(mlp(norm(cls, f"class_norm2_{i}"), dim, f"class_mlp{i}"))
    out = norm(cls, "norm")
    return keras.Model(inputs, layers.Dense(classes, name="head")(out[:, 0]))
