import keras
from keras import layers, ops

MARGIN = 0.4


def encoder():
    x = image = keras.Input((18, 18, 1))
    x = layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False, name="conv1")(x)
    x = layers.GroupNormalization(4, name="norm1")(x)
    x = layers.LeakyReLU(negative_slope=0.1)(x)
    x = layers.AveragePooling2D(3, strides=2, padding="same")(x)
    x = layers.Conv2D(24, 3, padding="same", use_bias=False, name="conv2")(x)
    x = layers.GroupNormalization(4, name="norm2")(x)
    x = layers.LeakyReLU(negative_slope=0.1)(x)
    x = layers.Flatten()(x)
    x = layers.Dropout(0.25)(x)
    x = layers.Dense(16, name="embed")(x)
    return keras.Model(image, layers.UnitNormalization(name="unit")(x), name="encoder")


def build():
    inputs = {k: keras.Input((18, 18, 1), name=k) for k in ("anchor", "positive", "negative")}
    encode = encoder()
    codes = [encode(inputs[k]) for k in ("anchor", "positive", "negative")]
    return keras.Model(inputs, layers.Concatenate(name="codes")(codes))


def triplet(y_true, y_pred):
    """Cosine triplets; y_true is each triplet's margin factor."""
    a, p, n = ops.split(y_pred, 3, axis=-1)
    near = 1 - ops.sum(a * p, axis=-1)
    far = 1 - ops.sum(a * n, axis=-1)
    return ops.relu(near - far + MARGIN * ops.reshape(y_true, (-1,)))
