"""One-scale detector of people and animals in thermal pictures of a drone."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

GRID = 4
CLASSES = 2
ANCHORS = np.array([[0.10, 0.22], [0.20, 0.14], [0.34, 0.30]], dtype="float32")


def conv(x, filters, size, name):
    x = layers.Conv2D(filters, size, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=0.97, epsilon=1e-3, name=f"{name}_bn")(x)
    return layers.LeakyReLU(negative_slope=0.1, name=f"{name}_act")(x)


def build():
    thermal = keras.Input((32, 32), name="thermal")
    x = layers.Reshape((32, 32, 1))(thermal)
    x = conv(x, 8, 3, "stem")
    x = layers.MaxPooling2D()(x)
    x = conv(x, 16, 3, "down1")
    x = layers.MaxPooling2D()(x)
    fine = conv(x, 24, 3, "down2")
    x = layers.MaxPooling2D()(fine)

    # cross-stage partial block
    kept = conv(x, 12, 1, "csp_keep")
    y = conv(x, 12, 1, "csp_in")
    y = layers.Add()([y, conv(conv(y, 12, 1, "csp_mid1"), 12, 3, "csp_mid2")])
    x = conv(layers.Concatenate()([y, kept]), 24, 1, "csp_out")

    # spatial pyramid and the finer map
    pooled = [layers.MaxPooling2D(k, strides=1, padding="same")(x) for k in (3, 5)]
    passed = conv(fine, 4, 1, "pass")
    passed = layers.Lambda(lambda t: tf.nn.space_to_depth(t, 2), output_shape=(4, 4, 16), name="reorg")(
        passed
    )
    x = layers.Concatenate()([x, *pooled, passed])
    x = conv(x, 32, 1, "neck")
    x = layers.Conv2D(len(ANCHORS) * (5 + CLASSES), 1, name="head")(x)
    boxes = layers.Reshape((GRID, GRID, len(ANCHORS), 5 + CLASSES), name="boxes")(x)
    return keras.Model(thermal, boxes, name="thermal_yolo")


def decode(raw):
    cells = np.stack(np.meshgrid(np.arange(GRID), np.arange(GRID)), axis=-1)[:, :, None].astype("float32")
    xy = (tf.sigmoid(raw[..., 0:2]) * 2.0 - 0.5 + tf.cast(cells, raw.dtype)) / GRID
    wh = tf.square(tf.sigmoid(raw[..., 2:4]) * 2.0) * tf.cast(ANCHORS, raw.dtype)
    return xy, wh


def ciou(xy1, wh1, xy2, wh2, eps=1e-7):
    low = tf.maximum(xy1 - wh1 / 2, xy2 - wh2 / 2)
    high = tf.minimum(xy1 + wh1 / 2, xy2 + wh2 / 2)
    inter = tf.reduce_prod(tf.nn.relu(high - low), axis=-1)
    union = tf.reduce_prod(wh1, axis=-1) + tf.reduce_prod(wh2, axis=-1) - inter + eps
    iou = inter / union
    hull = tf.maximum(xy1 + wh1 / 2, xy2 + wh2 / 2) - tf.minimum(xy1 - wh1 / 2, xy2 - wh2 / 2)
    diagonal = tf.reduce_sum(tf.square(hull), axis=-1) + eps
    distance = tf.reduce_sum(tf.square(xy1 - xy2), axis=-1)
    angle = tf.atan(wh2[..., 0] / (wh2[..., 1] + eps)) - tf.atan(wh1[..., 0] / (wh1[..., 1] + eps))
    v = 4.0 / np.pi**2 * tf.square(angle)
    alpha = tf.stop_gradient(v / (1.0 - iou + v + eps))
    return iou - distance / diagonal - alpha * v


def loss(targets, outputs):
    """targets: (batch, 4, 4, 3, 7) of present, x, y, w, h in units of the picture, classes."""
    present = targets[..., 0]
    xy, wh = decode(outputs)
    overlap = ciou(xy, wh, targets[..., 1:3], targets[..., 3:5])
    box = tf.reduce_sum(present * (1.0 - overlap), axis=[1, 2, 3])
    quality = present * tf.stop_gradient(tf.nn.relu(overlap))
    obj = tf.nn.sigmoid_cross_entropy_with_logits(labels=quality, logits=outputs[..., 4])
    cls = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets[..., 5:], logits=outputs[..., 5:])
    cls = tf.reduce_sum(present * tf.reduce_sum(cls, axis=-1), axis=[1, 2, 3])
    return 2.0 * box + tf.reduce_sum(obj, axis=[1, 2, 3]) + 0.5 * cls


def optimizer():
    return keras.optimizers.SGD(learning_rate=2e-3, momentum=0.9, nesterov=True)
