"""Will a small firm repay: calibrated features in an ensemble of interpolated lattices."""

import itertools

import keras
import numpy as np
from keras import layers, ops

# turnover (log10 euro), years in business, debt to income, card use, balance change (thousand euro)
KEYPOINTS = np.array(
    [
        [4.0, 4.5, 5.0, 5.5, 6.0, 7.0],
        [0.0, 1.0, 3.0, 7.0, 15.0, 40.0],
        [0.0, 0.15, 0.3, 0.5, 0.8, 1.5],
        [0.0, 0.1, 0.3, 0.6, 0.9, 1.0],
        [-20.0, -5.0, -1.0, 1.0, 5.0, 20.0],
    ],
    np.float32,
)
INCREASING = (0, 1)
DECREASING = (2,)
PURPOSES = 7
# columns of the calibrated row; 5 is the purpose of the loan
LATTICES = ((0, 2, 5), (1, 3, 4), (2, 4, 5), (0, 1, 3))


class Calibrate(layers.Layer):
    """Piecewise linear curves into (0, 1); some of them only rise or only fall."""

    def build(self, shape):
        count, knots = KEYPOINTS.shape
        self.start = self.add_weight(
            name="start", shape=(count,), initializer=keras.initializers.Constant(-1.0)
        )
        self.rise = self.add_weight(
            name="rise", shape=(count, knots - 1), initializer=keras.initializers.RandomNormal(0.0, 0.3)
        )
        sign = np.zeros((count, 1), np.float32)
        sign[list(INCREASING)] = 1.0
        sign[list(DECREASING)] = -1.0
        self.sign = sign

    def call(self, x):
        points = ops.convert_to_tensor(KEYPOINTS, x.dtype)
        left, lengths = points[:, :-1], points[:, 1:] - points[:, :-1]
        sign = ops.convert_to_tensor(self.sign, x.dtype)
        share = ops.clip((x[:, :, None] - left) / lengths, 0.0, 1.0)
        rise = ops.where(sign == 0, self.rise, sign * ops.softplus(self.rise))
        return ops.sigmoid(self.start + ops.sum(share * rise, axis=-1))


class Lattice(layers.Layer):
    """A value at each corner of the cube, interpolated linearly in each direction."""

    def __init__(self, columns, **kwargs):
        super().__init__(**kwargs)
        self.columns = columns

    def build(self, shape):
        self.corners = self.add_weight(
            name="corners",
            shape=(2 ** len(self.columns),),
            initializer=keras.initializers.RandomNormal(0.0, 0.7),
        )

    def call(self, row):
        total = 0.0
        for i, corner in enumerate(itertools.product((0, 1), repeat=len(self.columns))):
            weight = 1.0
            for column, side in zip(self.columns, corner):
                weight = weight * (row[:, column] if side else 1.0 - row[:, column])
            total = total + weight * self.corners[i]
        return total


class Lending(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calibrate = Calibrate(name="calibrate")
        self.purpose = layers.Embedding(PURPOSES, 1, embeddings_initializer="normal", name="purpose")
        self.lattices = [Lattice(columns, name=f"lattice{i}") for i, columns in enumerate(LATTICES)]
        self.mix = layers.Dense(1, name="mix")

    def call(self, inputs):
        row = ops.concatenate(
            [self.calibrate(inputs["firm"]), ops.sigmoid(self.purpose(inputs["purpose"]))], axis=1
        )
        values = ops.stack([lattice(row) for lattice in self.lattices], axis=1)
        return self.mix(ops.tanh(values))


def build():
    model = Lending(name="lending")
    model({"firm": np.ones((2, 5), np.float32), "purpose": np.zeros((2,), np.int32)})
    return model
