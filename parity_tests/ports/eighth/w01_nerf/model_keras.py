"""A small NeRF: colours and densities along a ray, and the rendering of the ray's pixel."""

import keras
from keras import layers, ops


class PositionalEncoding(layers.Layer):
    def __init__(self, levels, **kwargs):
        super().__init__(**kwargs)
        self.levels = levels

    def call(self, x):
        parts = [x]
        for i in range(self.levels):
            parts.append(ops.sin(2.0**i * x))
            parts.append(ops.cos(2.0**i * x))
        return ops.concatenate(parts, axis=-1)


class VolumeRendering(layers.Layer):
    """Pixel of a ray over a white background."""

    def call(self, rgb, sigma, delta):
        depth = sigma * delta
        before = ops.cumsum(depth, axis=1) - depth
        weights = ops.exp(-before) * (1.0 - ops.exp(-depth))
        pixel = ops.sum(weights[..., None] * rgb, axis=1)
        return pixel + (1.0 - ops.sum(weights, axis=1, keepdims=True))


def build(samples=12, width=48):
    points = keras.Input((samples, 3), name="points")
    delta = keras.Input((samples,), name="delta")
    direction = keras.Input((3,), name="direction")
    encoded = PositionalEncoding(4, name="encode_points")(points)
    x = encoded
    for i in range(4):
        if i == 2:
            x = layers.Concatenate(name="skip")([x, encoded])
        x = layers.Dense(width, activation="relu", name=f"trunk_{i}")(x)
    sigma = layers.Dense(1, activation="softplus", name="sigma")(x)
    sigma = layers.Reshape((samples,), name="squeeze")(sigma)
    feature = layers.Dense(width, name="feature")(x)
    view = PositionalEncoding(2, name="encode_view")(direction)
    view = layers.RepeatVector(samples, name="every_sample")(view)
    h = layers.Concatenate(name="with_view")([feature, view])
    h = layers.Dense(width // 2, activation="relu", name="colour_hidden")(h)
    rgb = layers.Dense(3, activation="sigmoid", name="colour")(h)
    pixel = VolumeRendering(name="render")(rgb, sigma, delta)
    return keras.Model([points, delta, direction], pixel)
