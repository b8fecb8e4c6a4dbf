import keras
from keras import layers, ops

LATENT, CLASSES = 6, 4


def encoder():
    image = keras.Input((12, 12, 1))
    label = keras.Input((CLASSES,))
    x = layers.Conv2D(12, 4, strides=2, padding="same", use_bias=False, name="enc1")(image)
    x = layers.BatchNormalization(name="enc1_bn")(x)
    x = layers.Activation("silu")(x)
    x = layers.Conv2D(20, 3, padding="valid", use_bias=False, name="enc2")(x)
    x = layers.BatchNormalization(name="enc2_bn")(x)
    x = layers.Activation("silu")(x)
    x = layers.Concatenate()([layers.Flatten()(x), label])
    return keras.Model([image, label], layers.Dense(2 * LATENT, name="posterior")(x), name="encoder")


def decoder():
    z = keras.Input((LATENT,))
    label = keras.Input((CLASSES,))
    x = layers.Dense(6 * 6 * 12, activation="silu", name="project")(layers.Concatenate()([z, label]))
    x = layers.Reshape((6, 6, 12))(x)
    x = layers.Conv2DTranspose(10, 3, strides=2, padding="same", activation="silu", name="dec1")(x)
    x = layers.Conv2D(1, 3, padding="same", name="dec2")(x)
    return keras.Model([z, label], x, name="decoder")


class CVAE(keras.Model):
    """The noise is an input, so that a pass can be repeated."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = encoder(), decoder()

    def call(self, inputs, training=None):
        label = ops.one_hot(inputs["label"], CLASSES, dtype=inputs["image"].dtype)
        posterior = self.encoder([inputs["image"], label], training=training)
        mean, logvar = ops.split(posterior, 2, axis=-1)
        z = mean + ops.exp(0.5 * logvar) * inputs["noise"]
        return {"picture": self.decoder([z, label], training=training), "posterior": posterior}


def build():
    return CVAE()


def reconstruction(y_true, y_pred):
    return ops.mean(ops.softplus(y_pred) - y_true * y_pred, axis=(1, 2, 3)) * 12 * 12


def divergence(y_true, y_pred):
    """KL to the standard normal, by the weight that each sample has in the annealing."""
    mean, logvar = ops.split(y_pred, 2, axis=-1)
    kl = -0.5 * ops.sum(1 + logvar - ops.square(mean) - ops.exp(logvar), axis=-1)
    return kl * ops.reshape(y_true, (-1,))
