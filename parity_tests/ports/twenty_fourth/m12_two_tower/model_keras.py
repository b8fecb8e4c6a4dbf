"""Two-tower retrieval trained with in-batch softmax and logQ correction.

Inputs: user_id (int), user_feats (6,), item_id (int), item_feats (5,).
Target: log_q, the log of the probability with which the item is sampled.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

USERS, ITEMS, DIM = 40, 30, 12
TEMPERATURE = 0.2


class Tower(layers.Layer):
    """Id embedding and features -> unit vector."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(size, DIM, name="table")
        self.hidden = layers.Dense(24, activation="relu", name="hidden")
        self.project = layers.Dense(DIM, name="project")

    def call(self, ids, feats):
        x = ops.concatenate([self.table(ids), feats], axis=-1)
        return ops.normalize(self.project(self.hidden(x)), axis=-1)


class TwoTower(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.users = Tower(USERS, name="users")
        self.items = Tower(ITEMS, name="items")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def embed(self, inputs):
        u = self.users(inputs["user_id"], inputs["user_feats"])
        v = self.items(inputs["item_id"], inputs["item_feats"])
        return u, v

    def call(self, inputs):
        """Serving score of each (user, item) row, (B, 1)."""
        u, v = self.embed(inputs)
        return ops.sum(u * v, axis=-1, keepdims=True) / TEMPERATURE

    def train_step(self, data):
        x, log_q = data
        ids = x["item_id"]
        n = ops.shape(ids)[0]
        with tf.GradientTape() as tape:
            u, v = self.embed(x)
            logits = ops.matmul(u, ops.transpose(v)) / TEMPERATURE
            logits = logits - ops.reshape(log_q, (1, -1))
            # the same item elsewhere in the batch is no negative
            same = ops.equal(ids[:, None], ids[None, :])
            hit = ops.logical_and(same, ops.logical_not(ops.eye(n, dtype="bool")))
            logits = ops.where(hit, -1e9, logits)
            log_p = ops.log_softmax(logits, axis=-1)
            loss = -ops.mean(ops.diagonal(log_p))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    model = TwoTower(name="two_tower")
    dtype = keras.backend.floatx()
    model(
        {
            "user_id": np.zeros((1,), "int32"),
            "user_feats": np.zeros((1, 6), dtype),
            "item_id": np.zeros((1,), "int32"),
            "item_feats": np.zeros((1, 5), dtype),
        }
    )
    return model
