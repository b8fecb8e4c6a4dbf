import keras
from keras import layers


class CrossLayer(layers.Layer):
    """DCN-v2, low rank."""

    def __init__(self, rank, **kw):
        super().__init__(**kw)
        self.rank = rank

    def build(self, x0_shape, x_shape):
        self.down = layers.Dense(self.rank, use_bias=False, name="down")
        self.up = layers.Dense(x_shape[-1], name="up")
        self.down.build(x_shape)
        self.up.build((None, self.rank))

    def call(self, x0, x):
        return x0 * self.up(self.down(x)) + x


def build():
    dense = keras.Input((6,), name="dense")
    item = keras.Input((1,), dtype="int32", name="item")
    user = keras.Input((1,), dtype="int32", name="user")
    e_item = layers.Flatten()(
        layers.Embedding(30, 7, embeddings_initializer="random_normal", name="item_table")(item)
    )
    e_user = layers.Flatten()(
        layers.Embedding(25, 5, embeddings_initializer="random_normal", name="user_table")(user)
    )
    x0 = layers.Concatenate(name="x0")([dense, e_item, e_user])
    cross = x0
    for i in range(3):
        cross = CrossLayer(6, name=f"cross_{i}")(x0, cross)
    deep = layers.Dense(24, activation="relu", name="deep_0")(x0)
    deep = layers.Dense(10, activation="relu", name="deep_1")(deep)
    out = layers.Dense(1, name="logit")(layers.Concatenate()([cross, deep]))
    return keras.Model([dense, item, user], out, name="dcn_v2")
