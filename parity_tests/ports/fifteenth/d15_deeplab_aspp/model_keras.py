"""DeepLabv3 in small: land cover of satellite tiles; the border of each tile is not judged (255)."""

import keras
from keras import layers

SIZE, CLASSES, VOID = 24, 5, 255


def conv_bn_relu(x, filters, size, strides=1, rate=1):
    x = layers.Conv2D(
        filters,
        size,
        strides,
        padding="same",
        dilation_rate=rate,
        use_bias=False,
        kernel_initializer="he_uniform",
    )(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-4)(x)
    return layers.ReLU()(x)


def residual(x, filters, rate):
    h = conv_bn_relu(x, filters, 3, rate=rate)
    h = layers.Conv2D(filters, 3, padding="same", dilation_rate=rate, use_bias=False)(h)
    h = layers.BatchNormalization(momentum=0.9, epsilon=1e-4)(h)
    return layers.ReLU()(layers.Add()([x, h]))


def aspp(x, filters, rates):
    h, w = x.shape[1:3]
    branches = [conv_bn_relu(x, filters, 1)]
    branches += [conv_bn_relu(x, filters, 3, rate=r) for r in rates]
    pooled = layers.GlobalAveragePooling2D(keepdims=True)(x)
    pooled = conv_bn_relu(pooled, filters, 1)
    branches.append(layers.UpSampling2D((h, w))(pooled))
    return conv_bn_relu(layers.Concatenate()(branches), filters, 1)


def build():
    x = inputs = keras.Input((SIZE, SIZE, 4))
    x = conv_bn_relu(x, 10, 3, strides=2)
    low = x = residual(x, 10, 1)
    x = conv_bn_relu(x, 16, 3, strides=2)
    x = residual(x, 16, 2)
    x = aspp(x, 12, (2, 3))
    x = layers.Dropout(0.1)(x)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = layers.Concatenate()([x, conv_bn_relu(low, 4, 1)])
    x = layers.Conv2D(CLASSES, 3, padding="same")(x)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    model = keras.Model(inputs, x)
    rate = keras.optimizers.schedules.PolynomialDecay(0.02, 200, power=0.9)
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=VOID),
    )
    return model


training_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=VOID)
