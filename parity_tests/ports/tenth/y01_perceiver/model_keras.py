"""A small Perceiver: an array of pixels, read twice by a set of learned latents."""

import keras
import numpy as np
from keras import layers, ops

SIDE, LATENTS, WIDTH, HEADS, BANDS = 8, 12, 32, 2, 4


def fourier_positions(side, bands, max_frequency):
    axis = np.linspace(-1.0, 1.0, side)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(side * side, 2)
    angles = grid[:, :, None] * np.linspace(1.0, max_frequency / 2, bands) * np.pi
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return np.concatenate([grid, waves.reshape(side * side, -1)], axis=-1)


def gelu(x):
    return 0.5 * x * (1.0 + ops.erf(x / 2.0**0.5))


class PixelArray(layers.Layer):
    """(B, H, W, C) -> (B, H * W, C + positions)"""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.positions = fourier_positions(SIDE, BANDS, SIDE)

    def call(self, images):
        pixels = ops.reshape(images, (-1, SIDE * SIDE, images.shape[-1]))
        positions = ops.convert_to_tensor(self.positions, dtype=pixels.dtype)[None]
        positions = ops.broadcast_to(positions, (ops.shape(pixels)[0], *positions.shape[1:]))
        return ops.concatenate([pixels, positions], axis=-1)


class LatentArray(layers.Layer):
    def build(self, input_shape):
        self.latents = self.add_weight(
            shape=(LATENTS, WIDTH), initializer=keras.initializers.TruncatedNormal(stddev=0.3), name="latents"
        )

    def call(self, x):
        return ops.broadcast_to(self.latents[None], (ops.shape(x)[0], LATENTS, WIDTH))


class FeedForward(layers.Layer):
    def __init__(self, width, dropout, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")
        self.expand = layers.Dense(4 * width, name="expand")
        self.contract = layers.Dense(width, name="contract")
        self.dropout = layers.Dropout(dropout)

    def call(self, x, training=None):
        value, gate = ops.split(self.expand(self.norm(x)), 2, axis=-1)
        y = self.dropout(value * gelu(gate), training=training)
        return x + self.contract(y)


def build():
    image = keras.Input((SIDE, SIDE, 1), name="x")
    pixels = PixelArray(name="pixels")(image)
    pixels = layers.LayerNormalization(epsilon=1e-6, name="pixel_norm")(pixels)
    latents = LatentArray(name="latent_array")(pixels)

    # One set of weights for every reading of the pixels, one for the processing in between.
    query_norm = layers.LayerNormalization(epsilon=1e-6, name="query_norm")
    read = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, use_bias=False, name="read")
    read_mlp = FeedForward(WIDTH, 0.1, name="read_mlp")
    self_norm = layers.LayerNormalization(epsilon=1e-6, name="self_norm")
    think = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, use_bias=False, name="think")
    think_mlp = FeedForward(WIDTH, 0.1, name="think_mlp")

    for _ in range(2):
        latents = latents + read(query_norm(latents), pixels)
        latents = read_mlp(latents)
        normed = self_norm(latents)
        latents = latents + think(normed, normed)
        latents = think_mlp(latents)

    pooled = layers.GlobalAveragePooling1D(name="pool")(latents)
    pooled = layers.LayerNormalization(epsilon=1e-6, name="final_norm")(pooled)
    return keras.Model(image, layers.Dense(10, name="classes")(pooled))
