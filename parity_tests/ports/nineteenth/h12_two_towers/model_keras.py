"""Two towers, softmax over the items of the batch, corrected by the frequency of the items."""

import keras
import tensorflow as tf
from keras import layers


class Tower(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(2 * width, activation="relu", name="hidden")
        self.project = layers.Dense(width, name="project")

    def build(self, shape):
        self.hidden.build(shape)
        self.project.build((shape[0], self.hidden.units))
        self.built = True

    def call(self, x):
        return tf.math.l2_normalize(self.project(self.hidden(x)), axis=-1)


class TwoTowers(keras.Model):
    def __init__(self, users=20, items=24, categories=5, width=10):
        super().__init__()
        self.user = layers.Embedding(users, width, name="user")
        self.items = layers.Embedding(items + 1, width, name="items")
        self.category = layers.Embedding(categories, 4, name="category")
        self.query = Tower(width, name="query")
        self.candidate = Tower(width, name="candidate")
        self.log_scale = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(1.5), name="log_scale"
        )

    def call(self, inputs):
        seen = tf.cast(inputs["history"] != 0, self.compute_dtype)[..., None]
        bag = tf.reduce_sum(self.items(inputs["history"]) * seen, 1) / tf.maximum(tf.reduce_sum(seen, 1), 1.0)
        u = self.query(tf.concat([self.user(tf.reshape(inputs["user"], [-1])), bag], -1))
        v = self.candidate(
            tf.concat(
                [
                    self.items(tf.reshape(inputs["item"], [-1])),
                    self.category(tf.reshape(inputs["category"], [-1])),
                ],
                -1,
            )
        )
        return u, v

    def train_step(self, data):
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            u, v = self(inputs, training=True)
            item = tf.reshape(inputs["item"], [-1])
            logits = tf.exp(self.log_scale) * tf.matmul(u, v, transpose_b=True)
            logits -= tf.cast(tf.reshape(inputs["log_q"], [1, -1]), logits.dtype)
            twin = (item[:, None] == item[None]) & ~tf.eye(tf.shape(item)[0], dtype=tf.bool)
            logits = tf.where(twin, tf.cast(-1e9, logits.dtype), logits)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(item)[0]), logits)
            )
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"objective": loss}
