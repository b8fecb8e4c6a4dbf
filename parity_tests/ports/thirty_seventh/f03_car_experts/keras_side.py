"""Log price of used cars: a sparse mixture of experts (top 2 of 4) with a load-balancing term."""

import math

import keras
import tensorflow as tf
from keras import layers, ops


class TopKMoE(layers.Layer):
    def __init__(self, experts=4, k=2, hidden=16, units=8, **kw):
        super().__init__(**kw)
        self.k, self.n = k, experts
        self.router = layers.Dense(experts, use_bias=False, name="router")
        self.up = [layers.Dense(hidden, activation="silu", name=f"up{i}") for i in range(experts)]
        self.down = [layers.Dense(units, name=f"down{i}") for i in range(experts)]

    def build(self, shape):
        self.router.build(shape)
        for u, d in zip(self.up, self.down):
            u.build(shape)
            d.build((None, u.units))

    def call(self, x):
        probs = ops.softmax(self.router(x), axis=-1)
        kth = ops.top_k(probs, self.k)[0][:, -1:]
        chosen = ops.cast(probs >= kth, probs.dtype)
        gates = probs * chosen
        gates = gates / ops.sum(gates, axis=-1, keepdims=True)
        out = 0.0
        for i in range(self.n):
            out = out + gates[:, i : i + 1] * self.down[i](self.up[i](x))
        load = ops.mean(chosen, axis=0) / self.k
        self.add_loss(0.05 * self.n * ops.sum(load * ops.mean(probs, axis=0)))
        return out


class CarPrice(keras.Model):
    def __init__(self):
        super().__init__()
        self.stem = layers.Dense(12, activation="relu", name="stem")
        self.moe = TopKMoE(name="moe")
        self.head = layers.Dense(1, name="head")

    def call(self, x):
        h = self.stem(x)
        return self.head(ops.concatenate([h, self.moe(h)], axis=-1))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            e = self(x, training=True) - ops.cast(y, self.compute_dtype)
            # log cosh, the stable way
            loss = ops.mean(e + ops.softplus(-2.0 * e) - math.log(2.0)) + sum(self.losses)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    model = CarPrice()
    model(ops.zeros((1, 10)))
    return model
