import keras
from keras import layers, ops


class LayerScale(layers.Layer):
    def __init__(self, init_value=0.1, **kw):
        super().__init__(**kw)
        self.init_value = init_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma", shape=(input_shape[-1],), initializer=keras.initializers.Constant(self.init_value)
        )

    def call(self, x):
        return x * self.gamma


def convnext_block(x, dim, prefix):
    shortcut = x
    x = layers.DepthwiseConv2D(7, padding="same", name=prefix + "_dw")(x)
    x = layers.LayerNormalization(epsilon=1e-6, name=prefix + "_norm")(x)
    x = layers.Dense(4 * dim, activation="gelu", name=prefix + "_pw1")(x)
    x = layers.Dense(dim, name=prefix + "_pw2")(x)
    x = LayerScale(name=prefix + "_scale")(x)
    return layers.Add(name=prefix + "_add")([shortcut, x])


def build(depths=(1, 2), dims=(12, 20), num_classes=5):
    image = keras.Input((16, 16, 3))
    x = layers.Conv2D(dims[0], 2, strides=2, name="stem")(image)
    x = layers.LayerNormalization(epsilon=1e-6, name="stem_norm")(x)
    for s, (depth, dim) in enumerate(zip(depths, dims)):
        if s > 0:
            x = layers.LayerNormalization(epsilon=1e-6, name=f"down{s}_norm")(x)
            x = layers.Conv2D(dim, 2, strides=2, name=f"down{s}_conv")(x)
        for d in range(depth):
            x = convnext_block(x, dim, f"stage{s}_{d}")
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.LayerNormalization(epsilon=1e-6, name="head_norm")(x)
    logits = layers.Dense(num_classes, name="head")(x)
    return keras.Model(image, logits, name="convnext_nano")


def loss(y_true, y_pred, smoothing=0.1):
    k = y_pred.shape[-1]
    labels = ops.cast(ops.reshape(y_true, (-1,)), "int32")
    target = ops.one_hot(labels, k, dtype=y_pred.dtype) * (1.0 - smoothing) + smoothing / k
    return -ops.sum(target * ops.log_softmax(y_pred, axis=-1), axis=-1)
