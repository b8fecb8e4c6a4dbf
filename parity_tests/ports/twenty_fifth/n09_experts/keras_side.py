"""House prices by a sparse mixture of experts; the load of the experts is balanced as in the Switch Transformer."""

import keras
import tensorflow as tf
from keras import layers, ops


class Experts(layers.Layer):
    def __init__(self, experts, hidden, width, **kwargs):
        super().__init__(**kwargs)
        self.experts, self.hidden, self.width = experts, hidden, width

    def build(self, shape):
        self.w1 = self.add_weight(
            shape=(self.experts, shape[-1], self.hidden), name="w1", initializer="he_normal"
        )
        self.b1 = self.add_weight(
            shape=(self.experts, self.hidden),
            name="b1",
            initializer=keras.initializers.RandomNormal(stddev=0.1),
        )
        self.w2 = self.add_weight(
            shape=(self.experts, self.hidden, self.width), name="w2", initializer="he_normal"
        )

    def call(self, x):
        h = ops.silu(ops.einsum("ni,eih->neh", x, self.w1) + self.b1)
        return ops.einsum("neh,eho->neo", h, self.w2)


class PriceModel(keras.Model):
    def __init__(self, experts=4, chosen=2, width=12):
        super().__init__(name="prices")
        self.n_experts, self.chosen = experts, chosen
        self.stem = layers.Dense(width, activation="tanh", name="stem")
        self.router = layers.Dense(experts, use_bias=False, name="router")
        self.experts = Experts(experts, 9, width, name="experts")
        self.price = layers.Dense(1, name="price")

    def route(self, h):
        probabilities = ops.softmax(self.router(h))
        _, best = ops.top_k(probabilities, self.chosen)
        picked = ops.sum(ops.one_hot(best, self.n_experts, dtype=h.dtype), axis=1)
        gates = probabilities * picked
        gates = gates / ops.sum(gates, axis=-1, keepdims=True)
        first = ops.one_hot(best[:, 0], self.n_experts, dtype=h.dtype)
        return gates, probabilities, first

    def run(self, x):
        h = self.stem(x)
        gates, probabilities, first = self.route(h)
        h = h + ops.sum(gates[..., None] * self.experts(h), axis=1)
        load = ops.stop_gradient(ops.mean(first, axis=0))
        balance = self.n_experts * ops.sum(load * ops.mean(probabilities, axis=0))
        return self.price(h), balance

    def call(self, x):
        return self.run(x)[0]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            prediction, balance = self.run(x)
            error = prediction - ops.reshape(ops.cast(y, prediction.dtype), (-1, 1))
            loss = ops.mean(ops.square(error)) + 0.1 * balance
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        )
        return {"loss": loss}


def build():
    model = PriceModel()
    model.compile(optimizer="adam")
    return model
