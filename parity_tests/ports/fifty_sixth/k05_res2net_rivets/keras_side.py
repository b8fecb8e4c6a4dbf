"""Grade of a rivet head (good, proud, cracked) from a grey patch of 16 x 16: a small Res2Net with blurred strides."""

import keras
import numpy as np
import tensorflow as tf

BLUR = (np.outer([1, 2, 1], [1, 2, 1]) / 16).astype(np.float32)


class Norm(keras.layers.Layer):
    """Batch norm as PyTorch does it: the moving variance is of the unbiased one."""

    def build(self, input_shape):
        c = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=c, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=c, initializer="zeros")
        self.mean = self.add_weight(
            name="mean", shape=c, initializer="zeros", trainable=False, aggregation="mean"
        )
        self.variance = self.add_weight(
            name="variance", shape=c, initializer="ones", trainable=False, aggregation="mean"
        )

    def call(self, x, training=False):
        if training:
            mean, variance = tf.nn.moments(x, axes=[0, 1, 2])
            n = tf.cast(tf.reduce_prod(tf.shape(x)[:3]), x.dtype)
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            self.variance.assign(0.9 * self.variance + 0.1 * variance * n / (n - 1))
        else:
            mean, variance = self.mean, self.variance
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * self.gamma + self.beta


class Res2Block(keras.layers.Layer):
    """1 x 1, then a cascade of narrow 3 x 3 over the splits, 1 x 1, and the shortcut."""

    def __init__(self, channels, scale, narrow, **kwargs):
        super().__init__(**kwargs)
        self.channels, self.scale, self.narrow = channels, scale, narrow
        self.norms = {"in": Norm(name="norm_in"), "out": Norm(name="norm_out")}
        self.step_norms = [Norm(name=f"norm_{i}") for i in range(1, scale)]
        self.shortcut_norm = Norm(name="norm_shortcut")

    def build(self, input_shape):
        c, wide = input_shape[-1], self.scale * self.narrow
        he = keras.initializers.HeNormal
        self.kernels = {
            "in": self.add_weight(name="kernel_in", shape=(1, 1, c, wide), initializer=he()),
            "out": self.add_weight(name="kernel_out", shape=(1, 1, wide, self.channels), initializer=he()),
        }
        self.steps = [
            self.add_weight(name=f"kernel_{i}", shape=(3, 3, self.narrow, self.narrow), initializer=he())
            for i in range(1, self.scale)
        ]
        self.shortcut = None
        if c != self.channels:
            self.shortcut = self.add_weight(
                name="kernel_shortcut", shape=(c, self.channels), initializer=he()
            )

    def call(self, x, training=False):
        y = tf.nn.conv2d(x, self.kernels["in"], 1, "VALID")
        y = tf.nn.relu(self.norms["in"](y, training=training))
        parts = tf.split(y, self.scale, axis=-1)
        done = [parts[0]]
        carry = tf.zeros_like(parts[0])
        for part, kernel, norm in zip(parts[1:], self.steps, self.step_norms):
            carry = tf.nn.relu(norm(tf.nn.conv2d(part + carry, kernel, 1, "SAME"), training=training))
            done.append(carry)
        y = tf.nn.conv2d(tf.concat(done, axis=-1), self.kernels["out"], 1, "VALID")
        y = self.norms["out"](y, training=training)
        if self.shortcut is not None:
            x = self.shortcut_norm(tf.tensordot(x, self.shortcut, 1), training=training)
        return tf.nn.relu(x + y)


class BlurStride(keras.layers.Layer):
    def call(self, x):
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
        kernel = tf.cast(tf.tile(BLUR[:, :, None, None], [1, 1, x.shape[-1], 1]), x.dtype)
        return tf.nn.depthwise_conv2d(x, kernel, [1, 2, 2, 1], "VALID")


class Rivets(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.stem = self.add_weight(name="stem", shape=(5, 5, 1, 8), initializer="he_normal")
        self.stem_norm = Norm(name="stem_norm")
        self.blocks = [
            Res2Block(8, 4, 3, name="a"),
            Res2Block(16, 4, 4, name="b"),
            Res2Block(16, 4, 4, name="c"),
        ]
        self.blur = BlurStride(name="blur")
        self.grade = keras.layers.Dense(3, name="grade")

    def call(self, patch, training=False):
        x = (patch[..., None] - 0.5) / 0.25
        x = tf.nn.conv2d(x, self.stem, 1, "SAME")
        x = tf.nn.relu(self.stem_norm(x, training=training))
        for i, block in enumerate(self.blocks):
            x = block(x, training=training)
            if i < 2:
                x = self.blur(x)
        return self.grade(tf.concat([tf.reduce_mean(x, axis=[1, 2]), tf.reduce_max(x, axis=[1, 2])], axis=-1))


def build():
    return Rivets()


def loss(targets, outputs):
    """Cross entropy, neighbouring grades share a tenth."""
    soft = tf.constant([[0.9, 0.1, 0.0], [0.05, 0.9, 0.05], [0.0, 0.1, 0.9]], dtype=outputs.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(tf.gather(soft, tf.cast(targets, tf.int32)), outputs)
