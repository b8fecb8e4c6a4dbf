"""MobileViT (extra small) on side-scan sonar chips."""

import keras
from keras import layers, ops

BN = dict(momentum=0.9, epsilon=1e-5)


def conv_block(x, filters, kernel_size=3, strides=1, activation=True, name=""):
    x = layers.Conv2D(
        filters, kernel_size, strides=strides, padding="same", use_bias=False, name=name + "_conv"
    )(x)
    x = layers.BatchNormalization(name=name + "_bn", **BN)(x)
    return layers.Activation("swish", name=name + "_act")(x) if activation else x


def inverted_residual_block(x, filters, strides=1, expansion=2, name=""):
    inputs = x
    channels = x.shape[-1]
    x = conv_block(x, expansion * channels, 1, name=name + "_expand")
    x = layers.DepthwiseConv2D(3, strides=strides, padding="same", use_bias=False, name=name + "_dw")(x)
    x = layers.BatchNormalization(name=name + "_dw_bn", **BN)(x)
    x = layers.Activation("swish", name=name + "_dw_act")(x)
    x = conv_block(x, filters, 1, activation=False, name=name + "_project")
    if strides == 1 and channels == filters:
        x = layers.Add(name=name + "_add")([inputs, x])
    return x


def mlp(x, hidden, dim, name):
    x = layers.Dense(hidden, activation="swish", name=name + "_fc1")(x)
    return layers.Dense(dim, name=name + "_fc2")(x)


def transformer_block(x, depth, dim, heads=2, mlp_ratio=2, name=""):
    for i in range(depth):
        n = f"{name}_{i}"
        h = layers.LayerNormalization(epsilon=1e-5, name=n + "_ln1")(x)
        h = layers.MultiHeadAttention(heads, dim // heads, name=n + "_attn")(h, h)
        x = layers.Add(name=n + "_add1")([x, h])
        h = layers.LayerNormalization(epsilon=1e-5, name=n + "_ln2")(x)
        h = mlp(h, mlp_ratio * dim, dim, n)
        x = layers.Add(name=n + "_add2")([x, h])
    return layers.LayerNormalization(epsilon=1e-5, name=name + "_ln")(x)


def unfold(x, p):
    _, h, w, c = x.shape
    x = ops.reshape(x, (-1, h // p, p, w // p, p, c))
    x = ops.transpose(x, (0, 2, 4, 1, 3, 5))
    return ops.reshape(x, (-1, p * p, (h // p) * (w // p), c))


def fold(x, p, h, w):
    c = x.shape[-1]
    x = ops.reshape(x, (-1, p, p, h // p, w // p, c))
    x = ops.transpose(x, (0, 3, 1, 4, 2, 5))
    return ops.reshape(x, (-1, h, w, c))


def mobilevit_block(x, depth, dim, patch=2, name=""):
    height, width, channels = x.shape[1:]
    local = conv_block(x, channels, 3, name=name + "_local")
    local = layers.Conv2D(dim, 1, use_bias=False, name=name + "_to_tokens")(local)

    # the map must hold whole patches
    h = -(-height // patch) * patch
    w = -(-width // patch) * patch
    resized = (h, w) != (height, width)
    if resized:
        local = ops.image.resize(local, (h, w), interpolation="bilinear")
    tokens = unfold(local, patch)
    tokens = transformer_block(tokens, depth, dim, name=name + "_tr")
    y = fold(tokens, patch, h, w)
    if resized:
        y = ops.image.resize(y, (height, width), interpolation="bilinear")

    y = conv_block(y, channels, 1, name=name + "_from_tokens")
    y = layers.Concatenate(name=name + "_cat")([x, y])
    return conv_block(y, channels, 3, name=name + "_fuse")


def build(size=(20, 28), classes=4):
    inputs = keras.Input((*size, 1), name="sonar")
    x = layers.Rescaling(2.0, offset=-1.0)(inputs)
    x = conv_block(x, 8, 3, strides=2, name="stem")
    x = inverted_residual_block(x, 8, name="mv1")
    x = inverted_residual_block(x, 12, strides=2, name="mv2")
    x = inverted_residual_block(x, 12, name="mv3")
    x = mobilevit_block(x, 2, 16, name="vit1")
    x = inverted_residual_block(x, 16, strides=2, name="mv4")
    x = mobilevit_block(x, 2, 20, name="vit2")
    x = conv_block(x, 32, 1, name="head")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    outputs = layers.Dense(classes, name="wreck")(x)
    return keras.Model(inputs, outputs, name="mobilevit")
