"""Click rate: a cross network beside a deep one; momentum SGD with warm-up, cosine and a decay of the kernels only."""

import keras
from keras import layers, ops


class Cross(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[-1], shape[-1]), name="kernel", initializer="glorot_uniform"
        )
        self.bias = self.add_weight(
            shape=(shape[-1],), name="bias", initializer=keras.initializers.RandomNormal(stddev=0.2)
        )

    def call(self, first, x):
        return first * (ops.matmul(x, self.kernel) + self.bias) + x


def build():
    numbers = keras.Input((6,), name="numbers")
    category = keras.Input((3,), dtype="int32", name="category")
    tables = [
        layers.Embedding(
            size, 4, name=f"table{i}", embeddings_initializer=keras.initializers.RandomNormal(stddev=0.5)
        )
        for i, size in enumerate((9, 14, 7))
    ]
    columns = [table(category[:, i]) for i, table in enumerate(tables)]
    first = layers.concatenate([layers.LayerNormalization(epsilon=1e-5, name="standard")(numbers), *columns])
    crossed = first
    for i in range(2):
        crossed = Cross(name=f"cross{i}")(first, crossed)
    deep = layers.Dense(20, activation="relu", name="deep0")(first)
    deep = layers.LayerNormalization(epsilon=1e-5, name="deep_norm")(deep)
    deep = layers.Dense(12, activation="relu", name="deep1")(deep)
    return keras.Model(
        [numbers, category], layers.Dense(1, name="click")(layers.concatenate([crossed, deep]))
    )


def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(
        1e-2, decay_steps=30, alpha=0.1, warmup_target=1e-1, warmup_steps=6
    )
    sgd = keras.optimizers.SGD(rate, momentum=0.9, nesterov=True, weight_decay=0.02)
    sgd.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "embeddings"])
    return sgd
