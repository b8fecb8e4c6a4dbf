"""FaceNet-like: one encoder for anchor, positive and negative, embeddings on the unit sphere."""

import keras
import tensorflow as tf
from keras import layers

MARGIN = 0.4


def make_encoder():
    return keras.Sequential(
        [
            layers.Input((12, 12, 1)),
            layers.Conv2D(8, 3, padding="same", activation="elu", name="conv1"),
            layers.AveragePooling2D(2, name="pool1"),
            layers.Conv2D(16, 3, padding="same", activation="elu", name="conv2"),
            layers.GlobalMaxPooling2D(name="pool2"),
            layers.Dense(10, name="embed"),
            layers.UnitNormalization(name="unit"),
        ],
        name="encoder",
    )


class Triplet(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = make_encoder()
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, inputs, training=None):
        return tuple(self.encoder(inputs[k], training=training) for k in ("anchor", "positive", "negative"))

    def train_step(self, data):
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            a, p, n = self(inputs, training=True)
            near = tf.reduce_sum(tf.square(a - p), axis=-1)
            far = tf.reduce_sum(tf.square(a - n), axis=-1)
            loss = tf.reduce_mean(tf.maximum(near - far + MARGIN, 0.0))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def optimizer():
    return keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.2)
