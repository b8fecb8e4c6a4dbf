"""Cracks in concrete tiles: octave convolutions, Lovasz hinge per tile."""

import keras
from keras import layers, ops


def bn_relu(x, name):
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-3, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


def octave(high, low, c_high, c_low, name):
    conv = dict(kernel_size=3, padding="same", use_bias=False)
    pooled = layers.AveragePooling2D(2, name=f"{name}_pool")(high)
    hh = layers.Conv2D(c_high, name=f"{name}_hh", **conv)(high)
    hl = layers.Conv2D(c_low, name=f"{name}_hl", **conv)(pooled)
    lh = layers.Conv2D(c_high, name=f"{name}_lh", **conv)(low)
    ll = layers.Conv2D(c_low, name=f"{name}_ll", **conv)(low)
    lh = layers.UpSampling2D(2, interpolation="nearest", name=f"{name}_up")(lh)
    return (
        bn_relu(layers.Add()([hh, lh]), f"{name}_high"),
        bn_relu(layers.Add()([hl, ll]), f"{name}_low"),
    )


def build():
    tile = keras.Input((20, 20, 3), name="tile")
    high = layers.Conv2D(8, 3, padding="same", use_bias=False, name="stem_high")(tile)
    low = layers.Conv2D(6, 3, padding="same", use_bias=False, name="stem_low")(
        layers.AveragePooling2D(2)(tile)
    )
    high, low = bn_relu(high, "stem_high"), bn_relu(low, "stem_low")
    high, low = octave(high, low, 8, 6, "oct1")
    h2, l2 = octave(high, low, 8, 6, "oct2")
    high, low = layers.Add()([high, h2]), layers.Add()([low, l2])
    joined = layers.Concatenate()([high, layers.UpSampling2D(2)(low)])
    logits = layers.Conv2D(1, 1, name="logits")(joined)
    return keras.Model(tile, logits)


def loss(targets, outputs):
    """Lovasz hinge, one value a tile."""
    n = outputs.shape[1] * outputs.shape[2]
    logits = ops.reshape(outputs, (-1, n))
    truth = ops.cast(ops.reshape(targets, (-1, n)), logits.dtype)
    errors = 1.0 - logits * (2.0 * truth - 1.0)
    order = ops.argsort(-errors, axis=-1)
    errors = ops.take_along_axis(errors, order, axis=-1)
    truth = ops.take_along_axis(truth, order, axis=-1)
    total = ops.sum(truth, axis=-1, keepdims=True)
    inter = total - ops.cumsum(truth, axis=-1)
    union = total + ops.cumsum(1.0 - truth, axis=-1)
    jaccard = 1.0 - inter / union
    weights = ops.concatenate([jaccard[:, :1], jaccard[:, 1:] - jaccard[:, :-1]], axis=-1)
    return ops.sum(ops.relu(errors) * ops.stop_gradient(weights), axis=-1)
