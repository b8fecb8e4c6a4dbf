"""Gait classes from shoe sensors: MLP-mixer with layer scale."""

import keras
from keras import layers, ops

STEPS, SENSORS, DIM, N_GAITS = 12, 7, 20, 4


class LayerScale(layers.Layer):
    """Trained factor per channel on the residual branch."""

    def build(self, input_shape):
        self.scale = self.add_weight(
            name="scale", shape=(input_shape[-1],), initializer=keras.initializers.Constant(0.3)
        )
        super().build(input_shape)

    def call(self, x):
        return x * self.scale


def mlp(x, hidden, name):
    out = x.shape[-1]
    x = layers.Dense(hidden, activation="gelu", name=name + "_1")(x)
    return layers.Dense(out, name=name + "_2")(x)


def mixer_block(x, name):
    h = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm_t")(x)
    h = layers.Permute((2, 1), name=name + "_to_time")(h)
    h = mlp(h, 16, name + "_time")
    h = layers.Permute((2, 1), name=name + "_to_channels")(h)
    x = x + LayerScale(name=name + "_scale_t")(h)
    h = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm_c")(x)
    h = mlp(h, 30, name + "_channel")
    return x + LayerScale(name=name + "_scale_c")(h)


class Softpool(layers.Layer):
    """Average over time weighted with a softmax of the values themselves."""

    def call(self, x):
        return ops.sum(ops.softmax(x, axis=1) * x, axis=1)


def build():
    stride = keras.Input((STEPS, SENSORS), name="stride")
    x = layers.Dense(DIM, name="embed")(stride)
    x = mixer_block(x, "mix1")
    x = mixer_block(x, "mix2")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = Softpool(name="pool")(x)
    return keras.Model(stride, layers.Dense(N_GAITS, name="gait")(x), name="gait_mixer")


def make():
    """Nesterov SGD; the decay leaves biases and norm parameters alone."""
    optimizer = keras.optimizers.SGD(0.0625, momentum=0.75, nesterov=True, weight_decay=0.03125)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return optimizer
