import keras
import tensorflow as tf
from keras import layers


class HamiltonianNet(keras.Model):
    def __init__(self, hidden=24, anchor=0.1):
        super().__init__()
        self.anchor = anchor
        self.potential = keras.Sequential([layers.Dense(hidden, activation="tanh"), layers.Dense(1)])
        self.mass = layers.Dense(2, use_bias=False)
        self.mix = keras.Sequential(
            [layers.Dense(hidden, activation="softplus"), layers.Dense(1, use_bias=False)]
        )

    def call(self, x):
        q, p = x[:, :2], x[:, 2:]
        kinetic = 0.5 * tf.reduce_sum(tf.square(self.mass(p)), axis=-1, keepdims=True)
        angle = tf.concat([tf.cos(q), tf.sin(q)], axis=-1)
        return kinetic + self.potential(angle) + self.mix(tf.concat([angle, p], axis=-1))

    def field(self, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            energy = self(x, training=True)
        g = tape.gradient(energy, x)
        return tf.concat([g[:, 2:], -g[:, :2]], axis=-1)

    def train_step(self, data):
        x, dxdt = data
        with tf.GradientTape() as tape:
            err = tf.reduce_mean(tf.square(self.field(x) - dxdt))
            rest = self(tf.zeros_like(x[:1]), training=True)
            loss = err + self.anchor * tf.reduce_sum(tf.square(rest))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    model = HamiltonianNet()
    model(keras.ops.zeros((1, 4)))
    return model
