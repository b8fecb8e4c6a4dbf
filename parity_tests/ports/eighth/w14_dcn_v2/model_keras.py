"""Clicks: binned and categorical columns, a cross network (DCN-v2) beside a deep one, Adagrad."""

import keras
from keras import layers, ops


class Cross(layers.Layer):
    def build(self, x0_shape, x_shape):
        d = x0_shape[-1]
        self.kernel = self.add_weight(name="kernel", shape=(d, d), initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(d,), initializer="zeros")

    def call(self, x0, x):
        return x0 * (ops.matmul(x, self.kernel) + self.bias) + x


def build():
    age = keras.Input((1,), name="age")
    numbers = keras.Input((4,), name="numbers")
    codes = keras.Input((3,), dtype="int32", name="codes")
    group = layers.Discretization(bin_boundaries=[18, 25, 35, 45, 55, 65], name="age_group")(age)
    group = layers.Flatten(name="age_flat")(layers.Embedding(7, 4, name="age_embedding")(group))
    codes_ = layers.Flatten(name="codes_flat")(layers.Embedding(30, 6, name="code_embedding")(codes))
    x0 = layers.Concatenate(name="features")([numbers, group, codes_])
    x = x0
    for i in range(3):
        x = Cross(name=f"cross_{i}")(x0, x)
    deep = x0
    for i, width in enumerate((32, 16)):
        deep = layers.Dense(width, activation="relu", name=f"deep_{i}")(deep)
        deep = layers.Dropout(0.1, name=f"drop_{i}")(deep)
    x = layers.Concatenate(name="both")([x, deep])
    return keras.Model([age, numbers, codes], layers.Dense(1, name="click")(x))


def optimizer():
    return keras.optimizers.Adagrad(learning_rate=0.03, epsilon=1e-10)
