"""SwAV on outlines of shells (radii around the closed contour), with a linear probe for the species."""

import keras
import tensorflow as tf
from keras import layers

PROTOTYPES, SPECIES = 10, 6
SHARPNESS, TEMPERATURE, ROUNDS = 0.05, 0.1, 3


class RingConv(layers.Layer):
    """Strided convolution on a closed line, group norm, swish."""

    def __init__(self, filters, kernel=5, **kwargs):
        super().__init__(**kwargs)
        self.reach = kernel // 2
        self.conv = layers.Conv1D(filters, kernel, strides=2, use_bias=False, name="conv")
        self.norm = layers.GroupNormalization(groups=4, epsilon=1e-3, name="norm")

    def call(self, x):
        x = tf.concat([x[:, -self.reach :], x, x[:, : self.reach]], axis=1)
        return tf.nn.silu(self.norm(self.conv(x)))


def codes(scores):
    """Sinkhorn-Knopp: soft assignments of the samples, spread evenly over the prototypes."""
    q = tf.exp(tf.transpose(scores) / SHARPNESS)
    q /= tf.reduce_sum(q)
    k, b = tf.cast(tf.shape(q)[0], q.dtype), tf.cast(tf.shape(q)[1], q.dtype)
    for _ in range(ROUNDS):
        q /= k * tf.reduce_sum(q, axis=1, keepdims=True)
        q /= b * tf.reduce_sum(q, axis=0, keepdims=True)
    return tf.stop_gradient(tf.transpose(q * b))


class SwAV(keras.Model):
    def __init__(self):
        super().__init__(name="swav")
        self.backbone = [
            RingConv(16, name="ring_0"),
            RingConv(24, name="ring_1"),
            RingConv(32, name="ring_2"),
        ]
        self.project_1 = layers.Dense(32, activation="relu", name="project_1")
        self.project_2 = layers.Dense(12, name="project_2")
        self.prototypes = layers.Dense(PROTOTYPES, use_bias=False, name="prototypes")
        self.probe = layers.Dense(SPECIES, name="probe")

    def features(self, view):
        x = (view - tf.reduce_mean(view, axis=1, keepdims=True))[..., None]
        for block in self.backbone:
            x = block(x)
        return tf.concat([tf.reduce_mean(x, axis=1), tf.reduce_max(x, axis=1)], axis=-1)

    def scores(self, features):
        z = self.project_2(self.project_1(features))
        return self.prototypes(tf.math.l2_normalize(z, axis=-1))

    def call(self, inputs):
        return self.probe(tf.stop_gradient(self.features(inputs["view_a"])))

    def train_step(self, data):
        x, species, _ = keras.utils.unpack_x_y_sample_weight(data)
        kernel = self.prototypes.kernel
        kernel.assign(tf.math.l2_normalize(kernel, axis=0))
        with tf.GradientTape() as tape:
            features = [self.features(x[name]) for name in ("view_a", "view_b", "view_small")]
            scores = [self.scores(f) for f in features]
            swapped = 0.0
            for i in (0, 1):
                q = codes(scores[i])
                for j in (0, 1, 2):
                    if j != i:
                        p = tf.nn.log_softmax(scores[j] / TEMPERATURE)
                        swapped -= tf.reduce_mean(tf.reduce_sum(q * p, axis=1)) / 4
            logits = self.probe(tf.stop_gradient(features[0]))
            probe = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(species, logits))
            loss = swapped + probe
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss, "swapped": swapped, "probe": probe}


def build():
    model = SwAV()
    view = tf.zeros((1, 64), keras.config.floatx())
    model.scores(model.features(view))
    model({"view_a": view})
    return model
