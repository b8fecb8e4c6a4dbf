"""Anchor-free detection of round marks on two pyramid levels."""

import keras
from keras import layers, ops

SIZE, KINDS = 32, 3
STRIDES = (4, 8)


def conv(x, filters, stride, name):
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.GroupNormalization(4, epsilon=1e-5, name=f"{name}_gn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


class Distances(layers.Layer):
    """Left, top, right and bottom in cells, with a scale of each level."""

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x):
        return ops.exp(self.scale * x)


def build():
    image = keras.Input((SIZE, SIZE, 1), name="image")
    x = conv(image, 12, 2, "c1")
    c2 = conv(x, 16, 2, "c2")
    c3 = conv(c2, 24, 2, "c3")
    p3 = layers.Conv2D(16, 1, name="lateral3")(c3)
    p2 = layers.Conv2D(16, 1, name="lateral2")(c2) + layers.UpSampling2D(2)(p3)
    tower = layers.Conv2D(16, 3, padding="same", activation="relu", name="tower")
    kind = layers.Conv2D(KINDS, 3, padding="same", name="kind")
    box = layers.Conv2D(4, 3, padding="same", name="box")
    center = layers.Conv2D(1, 3, padding="same", name="center")
    rows = []
    for level, p in enumerate((p2, p3)):
        p = tower(p)
        side = Distances(name=f"distances_{level}")(box(p))
        rows.append(layers.Reshape((-1, KINDS + 5))(ops.concatenate([kind(p), side, center(p)], axis=-1)))
    return keras.Model(image, ops.concatenate(rows, axis=1), name="marks")


def huber(error, delta):
    size = ops.abs(error)
    return ops.where(size <= delta, 0.5 * size**2, delta * size - 0.5 * delta**2)


def loss(y_true, y_pred):
    """y: (batch, places, kinds + 5): one-hot kinds (none at the background), four distances, centerness."""
    y_true = ops.cast(y_true, y_pred.dtype)
    kinds, sides, centers = y_true[..., :KINDS], y_true[..., KINDS:-1], y_true[..., -1]
    positive = ops.max(kinds, axis=-1)
    count = ops.maximum(ops.sum(positive, axis=-1), 1)

    logits = y_pred[..., :KINDS]
    p = ops.sigmoid(logits)
    right = kinds * p + (1 - kinds) * (1 - p)
    alpha = kinds * 0.25 + (1 - kinds) * 0.75
    entropy = ops.relu(logits) - logits * kinds + ops.softplus(-ops.abs(logits))
    focal = ops.sum(alpha * (1 - right) ** 2 * entropy, axis=(1, 2)) / count

    distance = ops.sum(huber(y_pred[..., KINDS:-1] - sides, 0.5), axis=-1)
    distance = ops.sum(distance * positive, axis=-1) / count

    c = y_pred[..., -1]
    center = ops.relu(c) - c * centers + ops.softplus(-ops.abs(c))
    center = ops.sum(center * positive, axis=-1) / count
    return focal + distance + center
