import keras
from keras import layers, ops

NUM_SPECIES = 5


def conv_bn(x, filters, name):
    x = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_pw")(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)


def depthwise_bn(x, dilation, name):
    x = layers.DepthwiseConv2D(3, padding="same", dilation_rate=dilation, use_bias=False, name=f"{name}_dw")(
        x
    )
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)
    return layers.Activation("relu", name=f"{name}_act")(x)


def selective_kernel(x, channels, reduced, name):
    near = depthwise_bn(x, 1, f"{name}_near")
    far = depthwise_bn(x, 2, f"{name}_far")
    both = layers.Add(name=f"{name}_fuse")([near, far])
    pooled = layers.GlobalAveragePooling2D(name=f"{name}_gap")(both)
    code = layers.Dense(reduced, activation="relu", name=f"{name}_squeeze")(pooled)
    near_logit = layers.Dense(channels, name=f"{name}_pick_near")(code)
    far_logit = layers.Dense(channels, name=f"{name}_pick_far")(code)
    weights = ops.softmax(ops.stack([near_logit, far_logit], axis=1), axis=1)
    weights = ops.reshape(weights, (-1, 2, 1, 1, channels))
    return near * weights[:, 0] + far * weights[:, 1]


def sk_block(x, channels, reduced, name):
    y = layers.Activation("relu", name=f"{name}_pre")(x)
    y = conv_bn(y, channels, f"{name}_in")
    y = selective_kernel(y, channels, reduced, name)
    y = conv_bn(y, channels, f"{name}_out")
    return layers.Add(name=f"{name}_sum")([x, y])


def build():
    image = keras.Input((24, 24, 3), name="image")
    x = layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False, name="stem")(image)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="stem_bn")(x)
    x = sk_block(x, 12, 6, "b1")
    x = sk_block(x, 12, 6, "b2")
    x = layers.MaxPooling2D(2, name="shrink")(x)
    x = conv_bn(x, 20, "widen")
    x = sk_block(x, 20, 10, "b3")
    x = layers.Activation("relu", name="last_act")(x)
    x = layers.GlobalAveragePooling2D(name="gap")(x)
    logits = layers.Dense(NUM_SPECIES, name="species")(x)
    return keras.Model(image, logits, name="sknet")
