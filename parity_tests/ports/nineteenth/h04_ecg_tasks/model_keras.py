"""Rhythm and heart rate from two leads; the two losses are weighted by learned uncertainties (Kendall et al.)."""

import keras
import tensorflow as tf
from keras import layers


class ECGNet(keras.Model):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = layers.Conv1D(10, 7, strides=2, padding="same", activation="relu", name="conv1")
        self.conv2 = layers.Conv1D(14, 5, padding="same", activation="relu", name="conv2")
        self.pool = layers.MaxPooling1D(2)
        self.lstm = layers.LSTM(12, name="lstm")
        self.rhythm = layers.Dense(classes, name="rhythm")
        self.rate = layers.Dense(1, name="rate")
        self.log_vars = self.add_weight(shape=(2,), initializer="zeros", name="log_vars")

    def call(self, ecg):
        x = self.pool(self.conv2(self.conv1(ecg)))
        x = self.lstm(x)
        return {"rhythm": self.rhythm(x), "rate": self.rate(x)}

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            labels = tf.reshape(y["rhythm"], [-1])
            ce = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, out["rhythm"]))
            rate = tf.cast(tf.reshape(y["rate"], [-1]), out["rate"].dtype)
            mse = tf.reduce_mean(tf.square(rate - out["rate"][:, 0]))
            losses = tf.stack([ce, 0.5 * mse])
            loss = tf.reduce_sum(tf.exp(-self.log_vars) * losses + 0.5 * self.log_vars)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"objective": loss}
