"""Beehives in thermal frames: residual backbone, BiFPN, heads shared by the levels (EfficientDet)."""

import keras
from keras import layers, ops

CLASSES = 3
WIDTH = 10
LEVELS = (3, 4, 5)
BN = dict(momentum=0.9, epsilon=1e-3)


@keras.saving.register_keras_serializable("bifpn")
class FastFusion(layers.Layer):
    """Weighted sum of maps, weights kept positive and normalised."""

    def __init__(self, epsilon=1e-4, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.w = self.add_weight(name="fusion", shape=(len(input_shape),), initializer="ones")

    def call(self, inputs):
        w = ops.relu(self.w)
        total = sum(w[i] * x for i, x in enumerate(inputs))
        return total / (ops.sum(w) + self.epsilon)

    def compute_output_shape(self, input_shape):
        return input_shape[0]


def conv_bn(x, filters, kernel=3, strides=1, act=True, name=None):
    x = layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(name=f"{name}_bn", **BN)(x)
    return layers.Activation("relu", name=f"{name}_relu")(x) if act else x


def basic_block(x, filters, strides, name):
    y = conv_bn(x, filters, 3, strides, name=f"{name}_1")
    y = conv_bn(y, filters, 3, act=False, name=f"{name}_2")
    if strides != 1 or x.shape[-1] != filters:
        x = layers.AveragePooling2D(2, name=f"{name}_pool")(x) if strides != 1 else x
        x = conv_bn(x, filters, 1, act=False, name=f"{name}_sc")
    return layers.Activation("relu", name=f"{name}_out")(layers.Add(name=f"{name}_add")([x, y]))


def backbone(x, widths=(8, 12, 16), blocks=2):
    x = conv_bn(x, 8, 3, 2, name="stem")
    feats = []
    for level, width in zip(LEVELS, widths):
        for b in range(blocks):
            x = basic_block(x, width, 2 if b == 0 else 1, name=f"c{level}_{b}")
        feats.append(x)
    return feats


def fuse(inputs, name):
    x = FastFusion(name=f"{name}_fuse")(inputs)
    x = layers.Activation("swish", name=f"{name}_swish")(x)
    x = layers.SeparableConv2D(WIDTH, 3, padding="same", name=f"{name}_sep")(x)
    return layers.BatchNormalization(name=f"{name}_bn", **BN)(x)


def up(x):
    return layers.UpSampling2D(2)(x)


def down(x):
    return layers.MaxPooling2D(3, 2, padding="same")(x)


def bifpn(feats, name):
    p3, p4, p5 = feats
    td4 = fuse([p4, up(p5)], f"{name}_td4")
    out3 = fuse([p3, up(td4)], f"{name}_out3")
    out4 = fuse([p4, td4, down(out3)], f"{name}_out4")
    out5 = fuse([p5, down(out4)], f"{name}_out5")
    return [out3, out4, out5]


def head(feats, channels, prior, depth, name):
    convs = [layers.SeparableConv2D(WIDTH, 3, padding="same", name=f"{name}_sep{d}") for d in range(depth)]
    final = layers.Conv2D(
        channels, 3, padding="same", bias_initializer=keras.initializers.Constant(prior), name=f"{name}_final"
    )
    outs = []
    for level, x in zip(LEVELS, feats):
        for d, conv in enumerate(convs):
            x = conv(x)
            x = layers.BatchNormalization(name=f"{name}_bn{d}_p{level}", **BN)(x)
            x = layers.Activation("swish")(x)
        outs.append(layers.Reshape((-1, channels))(final(x)))
    return outs


def build(size=32, repeats=2):
    image = keras.Input((size, size, 1), name="thermal")
    x = layers.Rescaling(0.1, offset=-2.0)(image)
    feats = [conv_bn(f, WIDTH, 1, act=False, name=f"lateral{l}") for l, f in zip(LEVELS, backbone(x))]
    for r in range(repeats):
        feats = bifpn(feats, f"bifpn{r}")
    cls = layers.Concatenate(axis=1, name="cls")(head(feats, CLASSES, -3.0, 2, "cls_head"))
    box = layers.Concatenate(axis=1)(head(feats, 4, 0.5, 2, "box_head"))
    box = layers.Activation("softplus", name="box")(box)
    return keras.Model(image, {"cls": cls, "box": box}, name="bifpn")


def cls_loss(targets, outputs, alpha=0.25, gamma=2.0):
    """Focal loss, summed over anchors, by the number of hives in the frame."""
    p = ops.sigmoid(outputs)
    pt = targets * p + (1.0 - targets) * (1.0 - p)
    at = targets * alpha + (1.0 - targets) * (1.0 - alpha)
    log_pt = targets * ops.log_sigmoid(outputs) + (1.0 - targets) * ops.log_sigmoid(-outputs)
    focal = -at * ops.power(1.0 - pt, gamma) * log_pt
    hives = ops.maximum(ops.sum(targets, axis=(1, 2)), 1.0)
    return ops.sum(focal, axis=(1, 2)) / hives


def box_loss(targets, outputs):
    """1 - GIoU of the distances left, top, right, bottom at the anchors with a hive."""
    true, hit = targets[..., :4], targets[..., 4]
    area = lambda d: (d[..., 0] + d[..., 2]) * (d[..., 1] + d[..., 3])
    inter = area(ops.minimum(true, outputs))
    hull = area(ops.maximum(true, outputs))
    union = area(true) + area(outputs) - inter
    giou = inter / (union + 1e-7) - (hull - union) / (hull + 1e-7)
    return ops.sum((1.0 - giou) * hit, axis=1) / ops.maximum(ops.sum(hit, axis=1), 1.0)


def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(
        0.0005, decay_steps=60, alpha=0.05, warmup_target=0.005, warmup_steps=8
    )
    sgd = keras.optimizers.SGD(rate, weight_decay=4e-3)
    sgd.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "fusion"])
    return sgd
