"""Anchor-free detector (FCOS style): two-level FPN, shared heads.

Output per location: 3 class logits, 4 distances (l, t, r, b in pixels), 1 centreness
logit; both levels one after the other (8*8 + 4*4 = 80 locations).
Targets per location: class (0 = background), l, t, r, b, centreness.
"""

import keras
from keras import layers, ops

CLASSES, FPN = 3, 12
STRIDES = (4, 8)


class Scale(layers.Layer):
    """exp(s * x): one trainable scalar per pyramid level."""

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(1,), initializer="ones")

    def call(self, x):
        return ops.exp(self.scale * x)


def stem(x, f, stride, name):
    x = layers.ZeroPadding2D(1)(x)
    x = layers.Conv2D(f, 3, strides=stride, use_bias=False, name=name)(x)
    x = layers.GroupNormalization(4, epsilon=1e-5, name=name + "_gn")(x)
    return layers.Activation("silu")(x)


class Tower:
    """Convolutions that every pyramid level shares."""

    def __init__(self, name, depth=2):
        self.parts = [
            (
                layers.Conv2D(FPN, 3, padding="same", name=f"{name}{i}"),
                layers.GroupNormalization(3, epsilon=1e-5, name=f"{name}{i}_gn"),
            )
            for i in range(depth)
        ]

    def __call__(self, x):
        for conv, gn in self.parts:
            x = ops.relu(gn(conv(x)))
        return x


def build():
    inp = keras.Input((32, 32, 3), name="x")
    x = stem(inp, 8, 2, "stem1")
    c3 = stem(x, 12, 2, "stem2")
    c4 = stem(c3, 16, 2, "stem3")
    p4 = layers.Conv2D(FPN, 1, name="lateral4")(c4)
    p3 = layers.Conv2D(FPN, 1, name="lateral3")(c3) + layers.UpSampling2D(2)(p4)
    p3 = layers.Conv2D(FPN, 3, padding="same", name="smooth3")(p3)

    cls_tower, box_tower = Tower("cls_tower"), Tower("box_tower")
    prior = keras.initializers.Constant(-2.2)
    cls_out = layers.Conv2D(CLASSES, 3, padding="same", bias_initializer=prior, name="cls_out")
    box_out = layers.Conv2D(4, 3, padding="same", name="box_out")
    ctr_out = layers.Conv2D(1, 3, padding="same", name="ctr_out")
    levels = []
    for level, (p, stride) in enumerate(zip((p3, p4), STRIDES)):
        c, b = cls_tower(p), box_tower(p)
        box = Scale(name=f"scale{level}")(box_out(b)) * float(stride)
        y = ops.concatenate([cls_out(c), box, ctr_out(b)], axis=-1)
        levels.append(layers.Reshape((-1, CLASSES + 5))(y))
    return keras.Model(inp, layers.Concatenate(axis=1)(levels), name="fcos")


def detection_loss(y_true, y_pred):
    y_true = ops.cast(y_true, y_pred.dtype)
    cls = ops.cast(y_true[..., 0], "int32")
    pos = ops.cast(cls > 0, y_pred.dtype)
    n_pos = ops.maximum(ops.sum(pos), 1.0)

    hot = ops.one_hot(cls, CLASSES + 1, dtype=y_pred.dtype)[..., 1:]
    logits = y_pred[..., :CLASSES]
    p = ops.sigmoid(logits)
    bce = ops.softplus(logits) - hot * logits
    pt = hot * p + (1.0 - hot) * (1.0 - p)
    at = hot * 0.25 + (1.0 - hot) * 0.75
    focal = ops.sum(at * (1.0 - pt) ** 2 * bce) / n_pos

    l, t, r, b = ops.unstack(y_pred[..., CLASSES : CLASSES + 4], axis=-1)
    gl, gt, gr, gb = ops.unstack(y_true[..., 1:5], axis=-1)
    inter = (ops.minimum(l, gl) + ops.minimum(r, gr)) * (ops.minimum(t, gt) + ops.minimum(b, gb))
    union = (l + r) * (t + b) + (gl + gr) * (gt + gb) - inter
    hull = (ops.maximum(l, gl) + ops.maximum(r, gr)) * (ops.maximum(t, gt) + ops.maximum(b, gb))
    giou = inter / (union + 1e-7) - (hull - union) / (hull + 1e-7)
    ctr = y_true[..., 5] * pos
    box = ops.sum((1.0 - giou) * ctr) / ops.maximum(ops.sum(ctr), 1e-6)

    ctr_logit = y_pred[..., -1]
    ctr_bce = ops.softplus(ctr_logit) - y_true[..., 5] * ctr_logit
    return focal + box + ops.sum(ctr_bce * pos) / n_pos
