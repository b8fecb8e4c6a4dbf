"""Deep hedging: a policy trades the underlying to minimise the CVaR of a short option (OCE form)."""

import keras
import tensorflow as tf
from keras import layers, ops

STEPS, COST, ALPHA = 12, 0.002, 0.8


class Hedger(keras.Model):
    def __init__(self):
        super().__init__()
        self.policy = keras.Sequential(
            [
                layers.Dense(24, activation="elu"),
                layers.LayerNormalization(epsilon=1e-5),
                layers.Dense(24, activation="elu"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        self.threshold = self.add_weight(shape=(), initializer="zeros", name="threshold")

    def call(self, paths):
        """Gains of trading minus costs along price paths of shape (batch, STEPS + 1)."""
        spot = ops.unstack(paths, STEPS + 1, axis=1)
        held = ops.zeros_like(spot[0])
        gains = ops.zeros_like(spot[0])
        for t in range(STEPS):
            left = ops.ones_like(held) * (STEPS - t) / STEPS
            features = ops.stack([ops.log(spot[t]), left, held], axis=-1)
            target = ops.squeeze(self.policy(features), axis=-1)
            gains = gains - COST * spot[t] * ops.abs(target - held)
            gains = gains + target * (spot[t + 1] - spot[t])
            held = target
        return gains - COST * spot[STEPS] * ops.abs(held)

    def cvar(self, gains, claim):
        shortfall = ops.relu(claim - gains - self.threshold)
        return self.threshold + ops.mean(shortfall) / (1.0 - ALPHA)

    def train_step(self, data):
        paths, claim = data
        with tf.GradientTape() as tape:
            loss = self.cvar(self(paths, training=True), ops.reshape(claim, (-1,)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    model = Hedger()
    model(ops.ones((1, STEPS + 1)))
    model.compile(optimizer=keras.optimizers.Adam(2e-3))
    return model
