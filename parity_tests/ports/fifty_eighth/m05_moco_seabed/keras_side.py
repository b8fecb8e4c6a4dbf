"""Semi-supervised momentum contrast on side-scan sonar tiles: a queue of keys, a momentum projector, a class head."""

import keras
import tensorflow as tf
from keras import layers

HABITATS = 5
DIM = 10
QUEUE = 64
MOMENTUM = 0.96
TEMPERATURE = 0.2


def projector(name):
    return keras.Sequential(
        [
            keras.Input((24,)),
            layers.Dense(20, activation="relu", name="hidden"),
            layers.Dense(DIM, name="code"),
        ],
        name=name,
    )


def trunk():
    tile = keras.Input((16, 16, 1))
    x = tile
    for i, (width, stride) in enumerate(((8, 1), (12, 2), (16, 1), (24, 2))):
        x = layers.ZeroPadding2D(1)(x)
        x = layers.Conv2D(width, 3, strides=stride, use_bias=False, name=f"conv{i}")(x)
        x = layers.GroupNormalization(4, epsilon=1e-5, name=f"norm{i}")(x)
        x = layers.ReLU()(x)
    return keras.Model(tile, layers.GlobalAveragePooling2D()(x), name="trunk")


class SonarContrast(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.trunk = trunk()
        self.ask = projector("ask")
        self.answer = projector("answer")
        self.answer.trainable = False
        self.answer.set_weights(self.ask.get_weights())
        self.habitat = layers.Dense(HABITATS, name="habitat")
        self.habitat.build((None, 24))
        grid = tf.reshape(tf.range(QUEUE * DIM, dtype=keras.config.floatx()), (QUEUE, DIM))
        self.queue = self.add_weight(name="queue", shape=(QUEUE, DIM), trainable=False, initializer="zeros")
        self.queue.assign(tf.math.l2_normalize(tf.sin(1.7 * grid + 0.3), axis=1))
        self.built = True

    def call(self, inputs, training=None):
        features = self.trunk(inputs["view_a"][..., None])
        return self.habitat(features)

    def train_step(self, data):
        inputs, habitats = data
        # the momentum projector follows first
        for slow, fast in zip(self.answer.weights, self.ask.weights):
            slow.assign(MOMENTUM * slow + (1.0 - MOMENTUM) * fast)
        with tf.GradientTape() as tape:
            contrast, named, keys = self.objective(inputs, habitats)
            loss = contrast + 0.5 * named
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.queue.assign(tf.concat([keys, self.queue[: -tf.shape(keys)[0]]], axis=0))
        return {"loss": loss, "contrast": contrast, "named": named}

    def objective(self, inputs, habitats):
        fa = self.trunk(inputs["view_a"][..., None], training=True)
        fb = self.trunk(inputs["view_b"][..., None], training=True)
        queries = tf.math.l2_normalize(self.ask(fa), axis=1)
        keys = tf.stop_gradient(tf.math.l2_normalize(self.answer(fb), axis=1))
        positive = tf.reduce_sum(queries * keys, axis=1, keepdims=True)
        negative = tf.matmul(queries, tf.convert_to_tensor(self.queue), transpose_b=True)
        logits = tf.concat([positive, negative], axis=1) / TEMPERATURE
        contrast = -tf.nn.log_softmax(logits)[:, 0]
        named = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(habitats, "int32"), self.habitat(fa))
        return tf.reduce_mean(contrast), tf.reduce_mean(named), keys


def build():
    return SonarContrast(name="sonar")
