import keras
import tensorflow as tf
from keras import layers, ops

TEMPERATURE = 3.0
DISTILL = 0.7
EARLY = 0.4


class EarlyExit(keras.Model):
    def __init__(self):
        super().__init__(name="early_exit")
        self.c1 = layers.Conv2D(8, 3, strides=2, padding="valid", activation="relu", name="c1")
        self.n1 = layers.LayerNormalization(axis=-1, epsilon=1e-5, name="n1")
        self.exit_dense = layers.Dense(5, name="exit_dense")
        self.c2 = layers.Conv2D(12, 3, padding="same", activation="relu", name="c2")
        self.c3 = layers.Conv2D(12, 3, padding="same", activation="relu", name="c3")
        self.final_dense = layers.Dense(5, name="final_dense")

    def call(self, x, training=None):
        h = self.n1(self.c1(x))
        early = self.exit_dense(ops.mean(h, axis=(1, 2)))
        h = self.c3(self.c2(h))
        final = self.final_dense(ops.max(h, axis=(1, 2)))
        return {"early": early, "final": final}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            hard = keras.losses.sparse_categorical_crossentropy(y, out["final"], from_logits=True)
            hard_early = keras.losses.sparse_categorical_crossentropy(y, out["early"], from_logits=True)
            teacher = ops.log_softmax(ops.stop_gradient(out["final"]) / TEMPERATURE)
            student = ops.log_softmax(out["early"] / TEMPERATURE)
            kl = ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)
            loss = ops.mean(hard + EARLY * hard_early + DISTILL * TEMPERATURE**2 * kl)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


def build():
    m = EarlyExit()
    m(ops.zeros((2, 13, 13, 2)))
    return m
