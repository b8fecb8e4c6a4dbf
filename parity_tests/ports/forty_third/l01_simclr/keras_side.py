"""SimCLR on 16x16 crops of textures, with an online linear probe."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

RGB_MEAN = np.array([0.48, 0.45, 0.41], dtype="float32")
RGB_STD = np.array([0.25, 0.24, 0.26], dtype="float32")
BN = dict(momentum=0.9)
TAU_0 = 0.2
PROBE_WEIGHT = 0.5


def stage(filters, stride):
    return keras.Sequential(
        [
            layers.Conv2D(
                filters, 3, strides=stride, padding="same", use_bias=False, kernel_initializer="he_normal"
            ),
            layers.BatchNormalization(**BN),
            layers.Activation("swish"),
        ]
    )


class Backbone(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.stem = stage(12, 1)
        self.down1 = stage(16, 2)
        self.res_conv = layers.Conv2D(16, 3, padding="same", use_bias=False, kernel_initializer="he_normal")
        self.res_bn = layers.BatchNormalization(**BN)
        self.down2 = stage(24, 2)

    def call(self, x, training=None):
        x = self.down1(self.stem(x, training=training), training=training)
        x = tf.nn.silu(x + self.res_bn(self.res_conv(x), training=training))
        x = self.down2(x, training=training)
        return tf.reduce_mean(x, axis=[1, 2])


class SimCLR(keras.Model):
    def __init__(self, n_classes=4, **kw):
        super().__init__(**kw)
        self.backbone = Backbone(name="backbone")
        self.projector = keras.Sequential(
            [
                layers.Dense(32, use_bias=False),
                layers.BatchNormalization(**BN),
                layers.Activation("swish"),
                layers.Dense(20),
            ],
            name="projector",
        )
        self.probe = layers.Dense(n_classes, name="probe")
        self.log_tau = self.add_weight(
            shape=(), name="log_tau", initializer=keras.initializers.Constant(float(np.log(TAU_0)))
        )

    def call(self, pair, training=None):
        views = tf.concat(tf.unstack(pair, axis=1), axis=0)
        h = self.backbone((views - RGB_MEAN) / RGB_STD, training=training)
        z = tf.math.l2_normalize(self.projector(h, training=training), axis=-1)
        logits = self.probe(tf.stop_gradient(h))
        return tf.stack(tf.split(z, 2), axis=1), tf.stack(tf.split(logits, 2), axis=1)

    def nt_xent(self, z):
        n = tf.shape(z)[0]
        z = tf.concat(tf.unstack(z, axis=1), axis=0)
        sim = tf.matmul(z, z, transpose_b=True) * tf.exp(-self.log_tau.value)
        sim = tf.linalg.set_diag(sim, tf.fill([2 * n], tf.constant(-1e9, sim.dtype)))
        positive = tf.concat([tf.range(n) + n, tf.range(n)], axis=0)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=positive, logits=sim))

    def train_step(self, data):
        pair, label = data[:2]
        with tf.GradientTape() as tape:
            z, logits = self(pair, training=True)
            contrastive = self.nt_xent(z)
            rows = tf.concat(tf.unstack(logits, axis=1), axis=0)
            probe = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=tf.tile(tf.cast(label, tf.int32), [2]), logits=rows
                )
            )
            loss = contrastive + PROBE_WEIGHT * probe
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss, "contrastive": contrastive, "probe": probe}


def build():
    model = SimCLR(name="simclr")
    model(np.zeros((2, 2, 16, 16, 3), "float32"))
    return model
