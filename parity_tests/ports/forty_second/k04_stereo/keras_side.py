"""Tiny rectified-stereo depth network, trained with a scale-invariant log loss and an edge-aware smoothness term."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

H, W, D = 16, 32, 6
FOCAL_BASELINE = 12.0
LAMBDA, SMOOTH = 0.85, 0.05
DISPARITIES = np.arange(D, dtype=np.float32)


def si_log(depth, pred):
    """Eigen et al.; depth 0 means no lidar return. One value per image."""
    valid = tf.cast(depth > 0, pred.dtype)
    n = tf.reduce_sum(valid, axis=(1, 2, 3))
    g = (tf.math.log(pred) - tf.math.log(tf.where(depth > 0, depth, 1.0))) * valid
    m1 = tf.reduce_sum(g, axis=(1, 2, 3)) / n
    m2 = tf.reduce_sum(g * g, axis=(1, 2, 3)) / n
    return m2 - LAMBDA * m1**2


def smoothness(image, pred):
    disp = 1.0 / pred
    disp = disp / tf.reduce_mean(disp, axis=(1, 2, 3), keepdims=True)
    dx, dy = disp[:, :, 1:] - disp[:, :, :-1], disp[:, 1:] - disp[:, :-1]
    ix = tf.reduce_mean(tf.abs(image[:, :, 1:] - image[:, :, :-1]), -1, keepdims=True)
    iy = tf.reduce_mean(tf.abs(image[:, 1:] - image[:, :-1]), -1, keepdims=True)
    return tf.reduce_mean(tf.sqrt(dx**2 + 1e-4) * tf.exp(-4.0 * ix), axis=(1, 2, 3)) + tf.reduce_mean(
        tf.sqrt(dy**2 + 1e-4) * tf.exp(-4.0 * iy), axis=(1, 2, 3)
    )


class StereoModel(keras.Model):
    def total_loss(self, x, y):
        pred = self(x, training=True)
        left = x["left"] if isinstance(x, dict) else x[0]
        return tf.reduce_mean(si_log(y, pred) + SMOOTH * smoothness(left, pred))

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.total_loss(x, y)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def encoder():
    return keras.Sequential(
        [
            keras.Input((H, W, 3)),
            layers.Conv2D(12, 5, strides=2, padding="same", name="enc_conv1"),
            layers.GroupNormalization(groups=3, name="enc_gn1"),
            layers.Activation("swish"),
            layers.Conv2D(16, 3, padding="same", name="enc_conv2"),
            layers.GroupNormalization(groups=4, name="enc_gn2"),
            layers.Activation("swish"),
            layers.Conv2D(16, 3, dilation_rate=2, padding="same", use_bias=False, name="enc_conv3"),
        ],
        name="encoder",
    )


def cost_volume(args):
    fl, fr = args
    w = fl.shape[2]
    planes = [
        tf.reduce_mean(fl * tf.pad(fr, [[0, 0], [0, 0], [d, 0], [0, 0]])[:, :, :w], axis=-1) for d in range(D)
    ]
    return tf.stack(planes, axis=-1)


def build():
    left = keras.Input((H, W, 3), name="left")
    right = keras.Input((H, W, 3), name="right")
    enc = encoder()
    fl, fr = enc(left), enc(right)
    cost = layers.Lambda(cost_volume, name="cost", output_shape=(H // 2, W // 2, D))([fl, fr])
    ctx = layers.Conv2D(8, 1, activation="relu", name="context")(fl)
    h = layers.Concatenate()([cost, ctx])
    h = layers.Conv2D(24, 3, padding="same", activation="leaky_relu", name="agg1")(h)
    h = layers.Conv2D(D, 3, padding="same", name="agg2")(h)
    prob = layers.Softmax(name="prob")(layers.Add()([cost, h]))
    disp = layers.Lambda(lambda p: tf.reduce_sum(p * DISPARITIES, -1, keepdims=True), name="soft_argmax")(
        prob
    )
    up = layers.UpSampling2D(2, interpolation="bilinear", name="up")(disp)
    up = layers.Rescaling(2.0)(up)
    r = layers.Concatenate()([up, left])
    r = layers.Conv2D(12, 3, padding="same", activation="elu", name="refine1")(r)
    r = layers.Conv2D(1, 3, padding="same", name="refine2")(r)
    final = layers.Add()([up, r])
    depth = layers.Lambda(lambda z: FOCAL_BASELINE / (tf.nn.softplus(z) + 0.1), name="depth")(final)
    return StereoModel({"left": left, "right": right}, depth, name="stereo")
