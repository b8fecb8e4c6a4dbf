"""Paths of cars at junctions: polylines of lanes and of other cars, attention, several modes, winner takes all."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

MODES, HORIZON, DIM = 4, 10, 24


class Polyline(layers.Layer):
    """Features of nodes and, beside them, the maximum over the polyline."""

    def __init__(self, dim, **kw):
        super().__init__(**kw)
        self.nodes = layers.Dense(dim, activation="relu")
        self.whole = layers.Dense(dim, activation="relu")

    def call(self, x):
        n = self.nodes(x)
        top = ops.broadcast_to(ops.max(n, axis=-2, keepdims=True), ops.shape(n))
        return ops.max(self.whole(ops.concatenate([n, top], axis=-1)), axis=-2)


class Junctions(keras.Model):
    def __init__(self):
        super().__init__(name="junctions")
        self.cars = Polyline(DIM, name="cars")
        self.lanes = Polyline(DIM, name="lanes")
        self.attend = layers.MultiHeadAttention(6, 4, name="attend")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.trunk = layers.Dense(32, activation="silu", name="trunk")
        self.paths = layers.Dense(MODES * HORIZON * 2, name="paths")
        self.scores = layers.Dense(MODES, name="scores")

    @staticmethod
    def local(points, origin, turn):
        """Into the frame of the car: shifted, then turned against its heading."""
        d = points - origin
        c, s = ops.cos(turn), ops.sin(turn)
        return ops.stack([c * d[..., 0] + s * d[..., 1], c * d[..., 1] - s * d[..., 0]], axis=-1)

    def features(self, track, origin, turn):
        xy = self.local(track[..., :2], origin, turn) / 20.0
        angle = tf.math.floormod(track[..., 2] - turn + np.pi, 2 * np.pi) - np.pi
        return ops.concatenate([xy, angle[..., None], track[..., 3:] / 10.0], axis=-1)

    def call(self, inputs, training=None):
        ego, near, lanes = inputs["ego"], inputs["near"], inputs["lanes"]
        origin, turn = ego[:, -1, :2], ego[:, -1, 2]
        me = self.cars(self.features(ego, origin[:, None], turn[:, None]))
        others = self.cars(self.features(near, origin[:, None, None], turn[:, None, None]))
        roads = self.lanes(self.local(lanes, origin[:, None, None], turn[:, None, None]) / 20.0)
        tokens = ops.concatenate([me[:, None], others, roads], axis=1)
        mask = ops.concatenate(
            [ops.ones_like(inputs["near_valid"][:, :1]), inputs["near_valid"], inputs["lanes_valid"]], axis=1
        )
        seen = self.attend(me[:, None], tokens, attention_mask=ops.cast(mask[:, None, :], "bool"))
        x = self.trunk(self.norm(me + seen[:, 0]))
        steps = ops.reshape(self.paths(x), (-1, MODES, HORIZON, 2))
        return {"paths": ops.cumsum(steps, axis=2), "scores": self.scores(x)}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            paths = out["paths"]
            valid = ops.cast(y["future_valid"], paths.dtype)[:, None]
            gap = paths - ops.cast(y["future"], paths.dtype)[:, None]
            count = ops.sum(valid, axis=-1)
            distance = ops.sqrt(ops.sum(ops.square(ops.stop_gradient(gap)), axis=-1))
            best = ops.argmin(ops.sum(distance * valid, axis=-1) / count, axis=-1)
            size = ops.abs(gap)
            huber = ops.sum(ops.where(size < 1.0, 0.5 * ops.square(gap), size - 0.5), axis=-1)
            each = ops.sum(huber * valid, axis=-1) / count
            chosen = ops.one_hot(best, MODES, dtype=paths.dtype)
            regression = ops.sum(each * chosen, axis=-1)
            classes = -ops.sum(chosen * ops.log_softmax(out["scores"]), axis=-1)
            loss = ops.mean(regression + 0.5 * classes)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss, "regression": ops.mean(regression), "classes": ops.mean(classes)}


def build():
    model = Junctions()
    model(
        {
            "ego": np.zeros((2, 8, 4), "float32"),
            "near": np.zeros((2, 5, 8, 4), "float32"),
            "near_valid": np.ones((2, 5), "int32"),
            "lanes": np.zeros((2, 6, 5, 2), "float32"),
            "lanes_valid": np.ones((2, 6), "int32"),
        }
    )
    return model
