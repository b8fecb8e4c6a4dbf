"""Self-supervised features of wrist motion: two augmented views, VICReg loss, a shuffle network as encoder."""

import keras
import tensorflow as tf
from keras import layers, ops, regularizers


class ChannelShuffle(layers.Layer):
    def __init__(self, groups, **kwargs):
        super().__init__(**kwargs)
        self.groups = groups

    def call(self, x):
        length, channels = x.shape[1:]
        x = ops.reshape(x, (-1, length, self.groups, channels // self.groups))
        return ops.reshape(ops.transpose(x, (0, 1, 3, 2)), (-1, length, channels))


def shuffle_unit(x, groups, name):
    channels = x.shape[-1]
    y = layers.Conv1D(channels, 1, groups=groups, use_bias=False, name=f"{name}_in")(x)
    y = layers.GroupNormalization(groups=-1, epsilon=1e-5, name=f"{name}_norm")(y)
    y = layers.ReLU()(y)
    y = ChannelShuffle(groups, name=f"{name}_shuffle")(y)
    y = layers.DepthwiseConv1D(5, padding="same", name=f"{name}_depthwise")(y)
    y = layers.Conv1D(channels, 1, groups=groups, name=f"{name}_out")(y)
    return layers.ReLU()(layers.Add()([x, y]))


def make_encoder():
    motion = keras.Input((40, 6), name="motion")
    x = layers.Conv1D(24, 5, strides=2, padding="valid", activation="relu", name="stem")(motion)
    x = shuffle_unit(x, 3, "unit1")
    x = shuffle_unit(x, 3, "unit2")
    features = layers.GlobalAveragePooling1D(name="features")(x)
    return keras.Model(motion, features, name="encoder")


def make_expander(decay=1e-2):
    return keras.Sequential(
        [
            layers.Dense(32, activation="relu", kernel_regularizer=regularizers.L2(decay)),
            layers.Dense(16, kernel_regularizer=regularizers.L2(decay)),
        ],
        name="expander",
    )


class VICReg(keras.Model):
    def __init__(self, invariance=25.0, variance=25.0, covariance=1.0, **kwargs):
        super().__init__(**kwargs)
        self.weights_of_terms = invariance, variance, covariance
        self.encoder, self.expander = make_encoder(), make_expander()

    def call(self, motion, training=False):
        return self.expander(self.encoder(motion, training=training), training=training)

    @staticmethod
    def spread(z):
        n, d = ops.cast(ops.shape(z)[0], z.dtype), z.shape[-1]
        z = z - ops.mean(z, axis=0)
        covariance = ops.matmul(ops.transpose(z), z) / (n - 1)
        std = ops.sqrt(ops.diagonal(covariance) + 1e-4)
        off_diagonal = covariance * (1 - ops.eye(d, dtype=z.dtype))
        return ops.mean(ops.relu(1 - std)), ops.sum(ops.square(off_diagonal)) / d

    def train_step(self, data):
        first, second = data
        a, b, c = self.weights_of_terms
        with tf.GradientTape() as tape:
            z1, z2 = self(first, training=True), self(second, training=True)
            (v1, c1), (v2, c2) = self.spread(z1), self.spread(z2)
            loss = a * ops.mean(ops.square(z1 - z2)) + b * (v1 + v2) / 2 + c * (c1 + c2)
            loss += ops.sum(self.expander.losses)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss, "variance": (v1 + v2) / 2, "covariance": c1 + c2}


def build():
    model = VICReg()
    model.compile(optimizer=keras.optimizers.SGD(0.03, momentum=0.9))
    return model
