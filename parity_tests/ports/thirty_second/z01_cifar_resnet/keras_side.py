import keras
from keras import layers, regularizers

L2 = regularizers.L2(5e-4)


def conv(x, filters, kernel, strides=1, name=None):
    return layers.Conv2D(
        filters,
        kernel,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=L2,
        name=name,
    )(x)


def bn(x, name):
    return layers.BatchNormalization(momentum=0.9, name=name)(x)


def residual(x, filters, strides, name):
    shortcut = x
    y = conv(x, filters, 3, strides, name + "_conv1")
    y = layers.ReLU()(bn(y, name + "_bn1"))
    y = conv(y, filters, 3, 1, name + "_conv2")
    y = bn(y, name + "_bn2")
    if strides != 1 or x.shape[-1] != filters:
        shortcut = bn(conv(x, filters, 1, strides, name + "_proj"), name + "_proj_bn")
    return layers.ReLU()(layers.add([y, shortcut]))


def build():
    inp = keras.Input((16, 16, 3), name="image")
    x = conv(inp, 8, 3, name="stem")
    x = layers.ReLU()(bn(x, "stem_bn"))
    x = residual(x, 8, 1, "stage1")
    x = residual(x, 12, 2, "stage2")
    x = residual(x, 16, 2, "stage3")
    x = layers.GlobalAveragePooling2D()(x)
    out = layers.Dense(5, name="fc")(x)
    model = keras.Model(inp, out)
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model
