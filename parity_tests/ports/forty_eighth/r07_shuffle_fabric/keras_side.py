"""ShuffleNet V2 with weight standardisation and group norm: defects in grey pictures of fabric."""

import keras
from keras import layers, ops

SIZE = 32
CLASSES = 5
GROUPS = 4


@keras.saving.register_keras_serializable("fabric")
class WSConv2D(layers.Conv2D):
    """Convolution with kernels of mean 0 and variance 1 / fan-in."""

    def convolution_op(self, inputs, kernel):
        mean, variance = ops.moments(kernel, axes=[0, 1, 2], keepdims=True)
        fan_in = kernel.shape[0] * kernel.shape[1] * kernel.shape[2]
        kernel = (kernel - mean) / ops.sqrt(ops.maximum(variance * fan_in, 1e-4))
        return super().convolution_op(inputs, kernel)


@keras.saving.register_keras_serializable("fabric")
class GeM(layers.Layer):
    """Generalised mean over the picture, its exponent learnt."""

    def build(self, shape):
        self.p = self.add_weight(name="p", shape=(1,), initializer=keras.initializers.Constant(3.0))
        super().build(shape)

    def call(self, x):
        x = ops.power(ops.maximum(x, 1e-4), self.p)
        return ops.power(ops.mean(x, axis=(1, 2)), 1.0 / self.p)


def norm(x, name, act=True):
    x = layers.GroupNormalization(GROUPS, epsilon=1e-5, name=name)(x)
    return layers.ReLU()(x) if act else x


def branch(x, channels, stride, name):
    x = WSConv2D(channels, 1, use_bias=False, name=f"{name}_in")(x)
    x = norm(x, f"{name}_in_norm")
    x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False, name=f"{name}_depthwise")(x)
    x = norm(x, f"{name}_depthwise_norm", act=False)
    x = WSConv2D(channels, 1, use_bias=False, name=f"{name}_out")(x)
    return norm(x, f"{name}_out_norm")


def shuffle(x):
    _, height, width, channels = x.shape
    x = ops.reshape(x, (-1, height, width, 2, channels // 2))
    return ops.reshape(ops.swapaxes(x, 3, 4), (-1, height, width, channels))


def basic(x, name):
    kept, used = ops.split(x, 2, axis=-1)
    used = branch(used, used.shape[-1], 1, name)
    return shuffle(layers.Concatenate()([kept, used]))


def down(x, channels, name):
    side = layers.DepthwiseConv2D(
        3, strides=2, padding="same", use_bias=False, name=f"{name}_side_depthwise"
    )(x)
    side = norm(side, f"{name}_side_depthwise_norm", act=False)
    side = WSConv2D(channels // 2, 1, use_bias=False, name=f"{name}_side_out")(side)
    side = norm(side, f"{name}_side_out_norm")
    return shuffle(layers.Concatenate()([side, branch(x, channels // 2, 2, name)]))


def build():
    picture = keras.Input((SIZE, SIZE), name="picture")
    x = layers.Reshape((SIZE, SIZE, 1))(picture)
    x = WSConv2D(16, 3, strides=2, padding="same", use_bias=False, name="stem")(x)
    x = norm(x, "stem_norm")
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage, channels in enumerate((32, 64)):
        x = down(x, channels, f"stage{stage}_down")
        for unit in range(2):
            x = basic(x, f"stage{stage}_unit{unit}")
    x = WSConv2D(64, 1, use_bias=False, name="last")(x)
    x = norm(x, "last_norm")
    x = GeM(name="gem")(x)
    return keras.Model(picture, layers.Dense(CLASSES, name="classes")(x), name="fabric")


def loss(targets, outputs):
    """Smoothed cross-entropy."""
    labels = ops.one_hot(ops.cast(ops.reshape(targets, (-1,)), "int32"), CLASSES, dtype=outputs.dtype)
    return ops.mean(
        keras.losses.categorical_crossentropy(labels, outputs, from_logits=True, label_smoothing=0.1)
    )


def optimizer():
    return keras.optimizers.SGD(learning_rate=2**-9, momentum=0.875, nesterov=True)
