"""MobileNetV3-like net, first stage frozen (fine tuning), focal loss."""

import keras
import numpy as np
from keras import layers, ops


def hswish(x):
    return layers.Activation("hard_silu")(x)


def squeeze_excite(x, reduced, name):
    ch = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True)(x)
    s = layers.Conv2D(reduced, 1, activation="relu", name=f"{name}_reduce")(s)
    s = layers.Conv2D(ch, 1, activation="hard_sigmoid", name=f"{name}_expand")(s)
    return layers.Multiply()([x, s])


def inverted_residual(x, expand, out, kernel, stride, name):
    inp = x
    x = layers.Conv2D(expand, 1, use_bias=False, name=f"{name}_expand")(x)
    x = hswish(layers.BatchNormalization(name=f"{name}_expand_bn")(x))
    x = layers.DepthwiseConv2D(kernel, strides=stride, padding="same", use_bias=False, name=f"{name}_dw")(x)
    x = hswish(layers.BatchNormalization(name=f"{name}_dw_bn")(x))
    x = squeeze_excite(x, max(4, expand // 4), f"{name}_se")
    x = layers.Conv2D(out, 1, use_bias=False, name=f"{name}_project")(x)
    x = layers.BatchNormalization(name=f"{name}_project_bn")(x)
    if stride == 1 and inp.shape[-1] == out:
        x = layers.Add()([inp, x])
    return x


def build():
    img = keras.Input((16, 16, 3))
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(img)
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="stem")(x)
    x = hswish(layers.BatchNormalization(name="stem_bn")(x))
    x = inverted_residual(x, 16, 8, 3, 1, "b0")
    x = inverted_residual(x, 24, 12, 5, 2, "b1")
    x = inverted_residual(x, 32, 12, 3, 1, "b2")
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(24, name="neck")(x)
    x = hswish(x)
    x = layers.Dropout(0.2)(x)
    out = layers.Dense(4, name="classifier")(x)
    model = keras.Model(img, out)

    # the frozen stage stands for pretrained weights: give its norms some statistics
    rng = np.random.default_rng(11)
    for layer in model.layers:
        if layer.name.startswith(("stem", "b0")):
            layer.trainable = False
            if isinstance(layer, layers.BatchNormalization):
                n = layer.gamma.shape[0]
                layer.set_weights(
                    [
                        rng.uniform(0.7, 1.3, n),
                        rng.normal(0, 0.2, n),
                        rng.normal(0, 0.2, n),
                        rng.uniform(0.3, 1.0, n),
                    ]
                )
    return model


ALPHA = [0.2, 0.3, 0.25, 0.25]


def loss(y_true, y_pred, gamma=2.0):
    y = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), 4, dtype=y_pred.dtype)
    logp = ops.sum(y * ops.log_softmax(y_pred, axis=-1), axis=-1)
    alpha = ops.sum(y * ops.cast(np.array(ALPHA), y_pred.dtype), axis=-1)
    return -alpha * (1.0 - ops.exp(logp)) ** gamma * logp
