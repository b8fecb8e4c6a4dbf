"""Learned primal-dual reconstruction (Adler & Oktem) of small parallel-beam scans of drill cores."""

import keras
import numpy as np
from keras import layers, ops

SIZE, ANGLES, BINS = 16, 12, 20
ITERATIONS = 3
MEMORY = 4


def projection_matrix():
    """(ANGLES * BINS, SIZE * SIZE); each pixel is split linearly between two detector bins."""
    centre = (SIZE - 1) / 2
    rows, columns = np.mgrid[:SIZE, :SIZE]
    x, y = columns.ravel() - centre, centre - rows.ravel()
    matrix = np.zeros((ANGLES, BINS, SIZE * SIZE))
    pixels = np.arange(SIZE * SIZE)
    for a in range(ANGLES):
        theta = np.pi * a / ANGLES
        t = (x * np.cos(theta) + y * np.sin(theta)) * 0.85 + (BINS - 1) / 2
        low = np.floor(t).astype(int)
        part = t - low
        matrix[a, low, pixels] += 1 - part
        matrix[a, low + 1, pixels] += part
    matrix = matrix.reshape(ANGLES * BINS, SIZE * SIZE)
    return (matrix / 14.0).astype(np.float32)


def field_of_view():
    centre = (SIZE - 1) / 2
    rows, columns = np.mgrid[:SIZE, :SIZE]
    return (np.hypot(rows - centre, columns - centre) <= SIZE / 2).astype(np.float32)


class Update(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Conv2D(8, 3, padding="same", name="first")
        self.act = layers.PReLU(
            shared_axes=[1, 2], alpha_initializer=keras.initializers.Constant(0.25), name="act"
        )
        self.second = layers.Conv2D(MEMORY, 3, padding="same", name="second")

    def call(self, x):
        # the first channels are the state that is updated
        return x[..., :MEMORY] + self.second(self.act(self.first(x)))


class PrimalDual(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.matrix = projection_matrix()
        self.duals = [Update(name=f"dual_{i}") for i in range(ITERATIONS)]
        self.primals = [Update(name=f"primal_{i}") for i in range(ITERATIONS)]

    def project(self, image):
        flat = ops.reshape(image, (-1, SIZE * SIZE))
        return ops.reshape(ops.matmul(flat, self.matrix.T), (-1, ANGLES, BINS, 1))

    def back_project(self, sinogram):
        flat = ops.reshape(sinogram, (-1, ANGLES * BINS))
        return ops.reshape(ops.matmul(flat, self.matrix), (-1, SIZE, SIZE, 1))

    def call(self, sinogram):
        measured = ops.expand_dims(sinogram, -1)
        dual = ops.repeat(ops.zeros_like(measured), MEMORY, axis=-1)
        primal = ops.repeat(self.back_project(ops.zeros_like(measured)), MEMORY, axis=-1)
        for dual_update, primal_update in zip(self.duals, self.primals):
            dual = dual_update(ops.concatenate([dual, self.project(primal[..., 1:2]), measured], axis=-1))
            primal = primal_update(ops.concatenate([primal, self.back_project(dual[..., :1])], axis=-1))
        return primal[..., 0]


FOV = field_of_view()


def loss(targets, outputs):
    error = ops.sum(ops.square(outputs - targets) * FOV, axis=(1, 2)) / FOV.sum()
    down = ops.abs(outputs[:, 1:] - outputs[:, :-1])
    across = ops.abs(outputs[:, :, 1:] - outputs[:, :, :-1])
    roughness = ops.mean(down, axis=(1, 2)) + ops.mean(across, axis=(1, 2))
    return error + 0.02 * roughness


def build():
    model = PrimalDual(name="primal_dual")
    model(np.zeros((1, ANGLES, BINS), "float32"))
    return model
