"""Face verification: frozen pretrained backbone, trainable embedding head, triplets."""

import pathlib

import keras
import numpy as np
from keras import layers, ops


def pretrained_backbone():
    net = keras.Sequential(name="backbone")
    net.add(keras.Input((16, 16, 3)))
    for filters in (8, 16):
        net.add(layers.Conv2D(filters, 3, padding="same", use_bias=False))
        net.add(layers.BatchNormalization())
        net.add(layers.ReLU())
        net.add(layers.AveragePooling2D(2))
    w = np.load(pathlib.Path(__file__).with_name("backbone.npz"))
    net.set_weights([w[f"{k}{i}"] for i in (0, 1) for k in ("conv", "gamma", "beta", "mean", "var")])
    net.trainable = False
    return net


class FaceTriplet(keras.Model):
    def __init__(self):
        inputs = {k: keras.Input((16, 16, 3), name=k) for k in ("anchor", "positive", "negative")}
        backbone = pretrained_backbone()
        hidden = layers.Dense(24, activation="relu", name="hidden")
        project = layers.Dense(12, use_bias=False, name="project")
        unit = layers.UnitNormalization()

        def embed(x):
            x = layers.GlobalMaxPooling2D()(backbone(x))
            return unit(project(hidden(x)))

        vectors = [embed(x) for x in inputs.values()]
        super().__init__(
            inputs=inputs,
            outputs=layers.Lambda(lambda v: ops.stack(v, axis=1), output_shape=(3, 12))(vectors),
        )


def build():
    return FaceTriplet()


def triplet_loss(margin, vectors):
    anchor, positive, negative = vectors[:, 0], vectors[:, 1], vectors[:, 2]
    d_pos = ops.sum(ops.square(anchor - positive), axis=-1)
    d_neg = ops.sum(ops.square(anchor - negative), axis=-1)
    return ops.relu(d_pos - d_neg + ops.squeeze(margin, -1))
