"""Embeddings of airports from their links (LINE, first and second order), negatives from an alias table."""

import keras
import numpy as np
from keras import layers, ops

NODES = 60
DIM = 12
SHARE = 0.3


def network():
    """Degrees and places (degrees of latitude and longitude) of the airports."""
    rng = np.random.default_rng(500371)
    degree = np.floor(2 + 60 * rng.pareto(1.6, NODES).clip(0, 8)).astype(np.float32)
    places = np.stack([rng.uniform(-55, 65, NODES), rng.uniform(-180, 180, NODES)], 1).astype(np.float32)
    return degree, places


def alias_table(weights):
    p = weights.astype(np.float64) / weights.sum() * len(weights)
    alias = np.arange(len(p), dtype=np.int32)
    small = [i for i, v in enumerate(p) if v < 1]
    large = [i for i, v in enumerate(p) if v >= 1]
    keep = np.ones(len(p))
    while small and large:
        s, g = small.pop(), large.pop()
        keep[s], alias[s] = p[s], g
        p[g] -= 1 - p[s]
        (small if p[g] < 1 else large).append(g)
    return keep.astype(np.float32), alias


def distances(places):
    lat, lon = np.deg2rad(places.astype(np.float64)).T
    half_lat, half_lon = (lat[:, None] - lat) / 2, (lon[:, None] - lon) / 2
    h = np.sin(half_lat) ** 2 + np.outer(np.cos(lat), np.cos(lat)) * np.sin(half_lon) ** 2
    return np.arcsin(np.sqrt(h.clip(0, 1))).astype(np.float32)


DEGREE, PLACES = network()
ARCS = distances(PLACES)
KEEP, ALIAS = alias_table(DEGREE**0.75)


class Line(keras.Model):
    def __init__(self):
        super().__init__(name="airlinks")
        self.first = layers.Embedding(NODES, DIM, name="first")
        self.second = layers.Embedding(NODES, DIM, name="second")
        self.context = layers.Embedding(NODES, DIM, name="context")
        self.reach = self.add_weight(
            shape=(2,), initializer=keras.initializers.Constant([0.3, -0.2]), name="reach"
        )
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def affinity(self, a, b):
        arc = ops.cast(ops.take(ARCS.ravel(), a * NODES + b), self.compute_dtype)
        near = self.reach[0] * ops.exp(-3.0 * arc) + self.reach[1]
        one = ops.sum(self.first(a) * self.first(b), axis=-1) + near
        two = ops.sum(self.second(a) * self.context(b), axis=-1)
        return one, two

    def negatives(self, u_pick, u_keep):
        cell = ops.cast(ops.floor(u_pick * NODES), "int32")
        stays = u_keep < ops.cast(ops.take(KEEP, cell, axis=0), u_keep.dtype)
        return ops.where(stays, cell, ops.take(ALIAS, cell, axis=0))

    def call(self, inputs):
        source = ops.cast(inputs["source"], "int32")
        target = ops.cast(inputs["target"], "int32")
        drawn = self.negatives(inputs["u_pick"], inputs["u_keep"])
        one, two = self.affinity(source, target)
        none, ntwo = self.affinity(source[:, None], drawn)
        clash = ops.logical_or(drawn == target[:, None], drawn == source[:, None])
        return {
            "first": one,
            "second": two,
            "neg_first": none,
            "neg_second": ntwo,
            "live": ops.cast(ops.logical_not(clash), one.dtype),
        }

    def train_step(self, data):
        import tensorflow as tf

        x, flights = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            weight = ops.log1p(ops.cast(ops.reshape(flights, (-1,)), out["first"].dtype))
            count = ops.maximum(ops.sum(out["live"], axis=-1), 1.0)

            def contrast(pos, neg):
                pushed = ops.sum(ops.softplus(neg) * out["live"], axis=-1) * (neg.shape[-1] / count)
                return ops.softplus(-pos) + pushed

            each = SHARE * contrast(out["first"], out["neg_first"])
            each += (1.0 - SHARE) * contrast(out["second"], out["neg_second"])
            loss = ops.sum(weight * each) / ops.sum(weight)
            rows = self.second(ops.cast(x["source"], "int32"))
            loss += 1e-2 * ops.mean(ops.sum(ops.square(rows), axis=-1))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    model = Line()
    model(
        {
            "source": np.zeros((2,), "int32"),
            "target": np.ones((2,), "int32"),
            "u_pick": np.full((2, 5), 0.5, "float32"),
            "u_keep": np.full((2, 5), 0.5, "float32"),
        }
    )
    return model
