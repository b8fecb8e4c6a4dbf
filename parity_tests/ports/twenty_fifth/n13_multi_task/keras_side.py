"""Label and coarse depth of a small picture from a shared trunk of separable convolutions."""

import keras
from keras import layers, ops

MEAN, SCALE = [0.5, 0.25, 0.375], [2.0, 4.0, 2.0]


def build():
    image = keras.Input((10, 10, 3), name="image")
    x = layers.Lambda(
        lambda v: (
            (v - ops.convert_to_tensor(MEAN, dtype=v.dtype)) * ops.convert_to_tensor(SCALE, dtype=v.dtype)
        ),
        name="standard",
    )(image)
    x = layers.SeparableConv2D(12, 3, padding="same", name="sep1")(x)
    x = layers.PReLU(alpha_initializer=keras.initializers.Constant(0.25), shared_axes=[1, 2], name="prelu1")(
        x
    )
    x = layers.AveragePooling2D(3, strides=2, padding="same")(x)
    y = layers.SeparableConv2D(12, 3, padding="same", use_bias=False, name="sep2")(x)
    x = layers.add(
        [
            x,
            layers.PReLU(
                alpha_initializer=keras.initializers.Constant(0.25), shared_axes=[1, 2], name="prelu2"
            )(y),
        ]
    )
    squeeze = layers.Dense(3, activation="relu6", name="squeeze")(layers.GlobalAveragePooling2D()(x))
    x = layers.multiply(
        [x, layers.Dense(12, activation="hard_sigmoid", name="excite")(squeeze)[:, None, None]]
    )
    depth = layers.Conv2D(1, 3, padding="same", activation="softplus", name="depth")(x)
    h = layers.Dense(24, activation="softsign", name="features")(layers.Flatten()(x))
    label = layers.Dense(6, name="label")(layers.Dropout(0.25)(h))
    return keras.Model(image, {"label": label, "depth": depth})
