import keras
import tensorflow as tf
from keras import layers

WET = 0.1  # mm


def bernoulli_gamma(y_true, y_pred):
    """Negative log likelihood of rain: Bernoulli of wet or dry, gamma of the amount over the threshold."""
    logit, log_shape, log_scale = tf.unstack(y_pred, axis=-1)
    y = y_true[..., 0]
    wet = tf.cast(y > WET, tf.float32)
    amount = tf.maximum(y - WET, 1e-3)
    k = tf.exp(log_shape)
    log_pdf = (
        (k - 1.0) * tf.math.log(amount) - amount * tf.exp(-log_scale) - k * log_scale - tf.math.lgamma(k)
    )
    occurrence = tf.nn.sigmoid_cross_entropy_with_logits(labels=wet, logits=logit)
    return tf.reduce_mean(occurrence - wet * log_pdf)


class Terrain(layers.Layer):
    """Elevation and its slopes."""

    def call(self, z):
        dy, dx = tf.image.image_gradients(z)
        return tf.concat([z, 4.0 * dy, 4.0 * dx], -1)


def build():
    coarse = keras.Input((6, 6, 4), name="coarse")
    elevation = keras.Input((24, 24, 1), name="elevation")
    t = Terrain(name="terrain")(elevation)
    t1 = layers.Conv2D(12, 3, padding="same", activation="relu", name="terrain_fine")(t)
    t2 = layers.AveragePooling2D(2, name="pool")(t1)
    t2 = layers.Conv2D(12, 3, padding="same", activation="relu", name="terrain_mid")(t2)

    x = layers.Conv2D(24, 3, padding="same", name="enc")(coarse)
    x = layers.BatchNormalization(name="enc_bn")(x)
    x = layers.PReLU(shared_axes=[1, 2], name="enc_act")(x)
    x = layers.Conv2DTranspose(24, 3, strides=2, padding="same", activation="relu", name="up1")(x)
    x = layers.Concatenate()([x, t2])
    x = layers.Conv2D(24, 3, padding="same", activation="relu", name="dec1")(x)
    x = layers.Conv2DTranspose(16, 4, strides=2, padding="same", activation="relu", name="up2")(x)
    x = layers.Concatenate()([x, t1])
    x = layers.SeparableConv2D(16, 3, padding="same", activation="relu", name="dec2")(x)
    out = layers.Conv2D(3, 1, name="params", kernel_initializer=keras.initializers.RandomNormal(stddev=0.1))(
        x
    )
    return keras.Model({"coarse": coarse, "elevation": elevation}, out, name="downscaler")
