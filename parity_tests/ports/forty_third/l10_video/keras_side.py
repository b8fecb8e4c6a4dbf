"""Autoencoder of surveillance clips (ConvLSTM with a memory of normal patterns); gives the clip backwards."""

import keras
import tensorflow as tf
from keras import layers

T, SIZE = 6, 16
SLOTS, SHRINK = 12, 0.03
GRADIENT_WEIGHT = 0.5


class Memory(layers.Layer):
    """Gong et al. 2019, on each position of the map."""

    def build(self, shape):
        self.items = self.add_weight(
            name="items", shape=(SLOTS, shape[-1]), initializer=keras.initializers.RandomNormal(stddev=0.5)
        )

    def call(self, z):
        items = tf.convert_to_tensor(self.items)
        sim = tf.tensordot(
            tf.math.l2_normalize(z, -1, epsilon=1e-6),
            tf.math.l2_normalize(items, -1, epsilon=1e-6),
            [[-1], [-1]],
        )
        w = tf.nn.softmax(3.0 * sim)
        w = tf.nn.relu(w - SHRINK)
        w = w / tf.reduce_sum(w, -1, keepdims=True)
        return tf.concat([z, tf.tensordot(w, items, 1)], -1)


def build():
    model = keras.Sequential(
        [
            layers.Input((T, SIZE, SIZE, 1), name="clip"),
            layers.TimeDistributed(
                layers.Conv2D(8, 5, strides=2, padding="same", activation="elu"), name="enc_1"
            ),
            layers.TimeDistributed(layers.Conv2D(12, 3, strides=2, padding="same"), name="enc_2"),
            layers.TimeDistributed(layers.GroupNormalization(groups=3), name="enc_norm"),
            layers.ConvLSTM2D(
                10,
                3,
                padding="same",
                recurrent_activation="hard_sigmoid",
                return_sequences=True,
                name="watch",
            ),
            Memory(name="memory"),
            layers.ConvLSTM2D(
                10,
                3,
                padding="same",
                recurrent_activation="hard_sigmoid",
                return_sequences=True,
                go_backwards=True,
                name="replay",
            ),
            layers.TimeDistributed(
                layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="elu"), name="dec_1"
            ),
            layers.TimeDistributed(
                layers.Conv2DTranspose(8, 5, strides=2, padding="same", activation="elu"), name="dec_2"
            ),
            layers.TimeDistributed(layers.Conv2D(1, 3, padding="same", activation="sigmoid"), name="pixels"),
        ],
        name="video_anomaly",
    )
    return model


def loss(y, p):
    """Intensity, gradients in both directions and motion; a number for each clip."""
    y = tf.cast(y, p.dtype)
    d = tf.reduce_mean(tf.square(y - p), axis=[1, 2, 3, 4])
    out = d
    for axis in (2, 3):
        n = SIZE - 1
        gy = tf.abs(tf.gather(y, range(1, SIZE), axis=axis) - tf.gather(y, range(n), axis=axis))
        gp = tf.abs(tf.gather(p, range(1, SIZE), axis=axis) - tf.gather(p, range(n), axis=axis))
        out += GRADIENT_WEIGHT * tf.reduce_mean(tf.abs(gy - gp), axis=[1, 2, 3, 4])
    my, mp = y[:, 1:] - y[:, :-1], p[:, 1:] - p[:, :-1]
    return out + tf.reduce_mean(tf.square(my - mp), axis=[1, 2, 3, 4])
