"""Neural additive model (Agarwal et al. 2021) of defaults on credits: a small network for each feature."""

import keras
from keras import layers, ops


class ExU(layers.Layer):
    """Units for each feature: exp(w) (x - b), cut to [0, 1]."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        self.w = self.add_weight(
            shape=(shape[-1], self.units), initializer=keras.initializers.RandomNormal(0.5, 0.3), name="w"
        )
        self.b = self.add_weight(
            shape=(shape[-1], self.units), initializer=keras.initializers.RandomUniform(-1, 1), name="b"
        )

    def call(self, x):
        return ops.clip(ops.exp(self.w) * (x[..., None] - self.b), 0, 1)


class PerFeature(layers.Layer):
    """A dense layer of its own for each feature."""

    def __init__(self, units, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.activation = keras.activations.get(activation)

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[1], shape[2], self.units), initializer="he_normal", name="kernel"
        )
        self.bias = self.add_weight(shape=(shape[1], self.units), initializer="zeros", name="bias")

    def call(self, x):
        return self.activation(ops.einsum("bfi,fio->bfo", x, self.kernel) + self.bias)


class NAM(keras.Model):
    def __init__(self, penalty=0.05):
        super().__init__()
        self.penalty = penalty
        self.exu = ExU(16)
        self.hidden = PerFeature(8, "relu", name="hidden")
        self.contribution = PerFeature(1, name="contribution")
        self.dropout = layers.Dropout(0.1)
        self.feature_dropout = layers.Dropout(0.05)

    def build(self, shape):
        self.bias = self.add_weight(shape=(1,), initializer="zeros", name="bias")
        super().build(shape)

    def call(self, x, training=None):
        x = self.dropout(self.exu(x), training=training)
        f = self.contribution(self.hidden(x))[..., 0]
        self.add_loss(self.penalty * ops.mean(ops.square(f)))
        f = self.feature_dropout(f, training=training)
        return ops.sum(f, -1, keepdims=True) + self.bias


def build():
    model = NAM()
    model.compile(optimizer=optimizer(), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def optimizer():
    schedule = keras.optimizers.schedules.CosineDecay(0.0, 40, warmup_target=0.1, warmup_steps=5)
    return keras.optimizers.SGD(schedule, global_clipnorm=0.2)
