"""A single-shot detector for fruit in orchard pictures: three levels of default boxes, hard negatives mined in each picture.

Outputs are (boxes, classes + 4): logits of background and the fruits, then the encoded offsets.
Targets are (boxes, 1 + 4): the class of the matched box (0: background), then its offsets.
"""

import keras
from keras import layers, ops

CLASSES = 4
BOXES = (2, 3, 3)
NEGATIVE_RATIO = 3
NEGATIVE_FLOOR = 6


@keras.saving.register_keras_serializable("ssd")
class WSConv2D(layers.Conv2D):
    """Convolution with standardised weights."""

    def convolution_op(self, inputs, kernel):
        mean, variance = ops.moments(kernel, axes=(0, 1, 2), keepdims=True)
        return super().convolution_op(inputs, (kernel - mean) / ops.sqrt(variance + 1e-5))


@keras.saving.register_keras_serializable("ssd")
class L2Scale(layers.Layer):
    """Unit length over the channels, then a learned scale for each of them."""

    def build(self, input_shape):
        self.scale = self.add_weight(
            name="scale", shape=(input_shape[-1],), initializer=keras.initializers.Constant(10.0)
        )

    def call(self, x):
        return self.scale * ops.normalize(x, axis=-1, order=2)


def conv_block(x, filters, stride, name):
    x = WSConv2D(filters, 3, strides=stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.GroupNormalization(groups=8, epsilon=1e-3, name=f"{name}_norm")(x)
    return layers.Activation("relu", name=f"{name}_relu")(x)


def build():
    picture = keras.Input((48, 48, 3), name="picture")
    x = conv_block(picture, 16, 2, "stem")
    x = conv_block(x, 24, 1, "block1")
    x = layers.MaxPooling2D(3, strides=2, padding="same", name="pool1")(x)
    level0 = conv_block(x, 32, 1, "block2")
    x = layers.MaxPooling2D(2, name="pool2")(level0)
    level1 = conv_block(x, 48, 1, "block3")
    level2 = conv_block(level1, 48, 2, "extra")
    levels = [L2Scale(name="l2_scale")(level0), level1, level2]
    logits, offsets = [], []
    for i, (level, boxes) in enumerate(zip(levels, BOXES)):
        c = layers.Conv2D(boxes * CLASSES, 3, padding="same", name=f"class{i}")(level)
        o = layers.Conv2D(boxes * 4, 3, padding="same", name=f"offset{i}")(level)
        logits.append(layers.Reshape((-1, CLASSES), name=f"class{i}_flat")(c))
        offsets.append(layers.Reshape((-1, 4), name=f"offset{i}_flat")(o))
    outputs = layers.Concatenate(axis=-1, name="boxes")(
        [
            layers.Concatenate(axis=1, name="logits")(logits),
            layers.Concatenate(axis=1, name="offsets")(offsets),
        ]
    )
    return keras.Model(picture, outputs, name="ssd")


def multibox_loss(targets, outputs):
    label = ops.cast(targets[..., 0], "int32")
    logits, offsets = outputs[..., :CLASSES], outputs[..., CLASSES:]
    entropy = keras.losses.sparse_categorical_crossentropy(label, logits, from_logits=True)
    positive = label > 0
    count = ops.sum(ops.cast(positive, "int32"), axis=1)

    hardness = ops.stop_gradient(ops.where(positive, -ops.ones_like(entropy), entropy))
    rank = ops.argsort(ops.argsort(-hardness, axis=1), axis=1)
    quota = ops.maximum(NEGATIVE_RATIO * count, NEGATIVE_FLOOR)
    chosen = ops.logical_or(positive, rank < quota[:, None])

    distance = ops.abs(targets[..., 1:] - offsets)
    smooth = ops.sum(ops.where(distance < 1.0, 0.5 * ops.square(distance), distance - 0.5), axis=-1)
    zero = ops.zeros_like(entropy)
    total = ops.sum(ops.where(chosen, entropy, zero) + ops.where(positive, smooth, zero), axis=1)
    return ops.mean(total / ops.cast(ops.maximum(count, 1), total.dtype))
