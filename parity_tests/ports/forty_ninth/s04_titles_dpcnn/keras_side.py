"""Shop titles to eight departments: a deep pyramid CNN, trained with perturbed embeddings as well."""

import keras
import tensorflow as tf
from keras import layers

VOCAB = 400
LENGTH = 32
DEPARTMENTS = 8
RADIUS = 0.5
ADVERSARIAL = 0.7


class PyramidBlock(layers.Layer):
    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.pool = layers.MaxPooling1D(3, strides=2, padding="same")
        self.conv_a = layers.Conv1D(filters, 3, padding="same")
        self.conv_b = layers.Conv1D(filters, 3, padding="same")

    def call(self, x):
        short = self.pool(x)
        y = self.conv_a(tf.nn.relu(short))
        y = self.conv_b(tf.nn.relu(y))
        return short + y


class DPCNN(keras.Model):
    def __init__(self, filters=24, blocks=3, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(VOCAB, 16)
        self.position = layers.Embedding(LENGTH, 16)
        self.region = layers.Conv1D(filters, 3, padding="same", name="region")
        self.conv_a = layers.Conv1D(filters, 3, padding="same", name="conv_a")
        self.conv_b = layers.Conv1D(filters, 3, padding="same", name="conv_b")
        self.blocks = [PyramidBlock(filters, name=f"pyramid_{i}") for i in range(blocks)]
        self.classifier = layers.Dense(DEPARTMENTS, name="classifier")
        self.total = keras.metrics.Mean(name="loss")

    def embed(self, titles):
        vectors = self.embedding(titles)
        real = tf.cast(tf.not_equal(titles, 0), vectors.dtype)
        return vectors * real[:, :, tf.newaxis] + self.position(tf.range(LENGTH))

    def classify(self, vectors):
        x = self.region(vectors)
        y = self.conv_a(tf.nn.relu(x))
        y = self.conv_b(tf.nn.relu(y))
        x = x + y
        for block in self.blocks:
            x = block(x)
        return self.classifier(tf.reduce_max(x, axis=1))

    def call(self, titles):
        return self.classify(self.embed(titles))

    def train_step(self, data):
        titles, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
        labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)

        def cross_entropy(logits):
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

        with tf.GradientTape() as tape:
            vectors = self.embed(titles)
            with tf.GradientTape() as inner:
                inner.watch(vectors)
                logits = self.classify(vectors)
                clean = cross_entropy(logits)
            slope = tf.stop_gradient(inner.gradient(clean, vectors))
            norm = tf.sqrt(tf.reduce_sum(tf.square(slope), axis=[1, 2], keepdims=True))
            bump = RADIUS * slope / (norm + 1e-8)
            attacked = self.classify(vectors + bump)
            loss = tf.reduce_mean(clean + ADVERSARIAL * cross_entropy(attacked))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.total.update_state(loss)
        return {"loss": self.total.result()}


def build():
    model = DPCNN()
    model(tf.zeros((1, LENGTH), tf.int32))
    return model
