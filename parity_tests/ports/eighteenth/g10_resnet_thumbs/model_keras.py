"""ResNet v1 for thumbnails. Originally Keras 2.2 (2019), moved to tf.keras since."""

from tensorflow import keras
from tensorflow.keras.layers import (
    Activation,
    BatchNormalization,
    Conv2D,
    Dense,
    GlobalAveragePooling2D,
    Input,
    add,
)
from tensorflow.keras.models import Model
from tensorflow.keras.regularizers import l2

WEIGHT_DECAY = 5e-4


def resnet_layer(inputs, num_filters=8, kernel_size=3, strides=1, activation="relu"):
    conv = Conv2D(
        num_filters,
        kernel_size=kernel_size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=l2(WEIGHT_DECAY),
    )
    x = conv(inputs)
    x = BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    if activation is not None:
        x = Activation(activation)(x)
    return x


def resnet_v1(input_shape=(16, 16, 3), stacks=3, num_classes=4):
    inputs = Input(shape=input_shape)
    num_filters = 6
    x = resnet_layer(inputs=inputs, num_filters=num_filters)
    for stack in range(stacks):
        strides = 1
        if stack > 0:
            strides = 2
            num_filters *= 2
        y = resnet_layer(inputs=x, num_filters=num_filters, strides=strides)
        y = resnet_layer(inputs=y, num_filters=num_filters, activation=None)
        if stack > 0:
            x = resnet_layer(
                inputs=x, num_filters=num_filters, kernel_size=1, strides=strides, activation=None
            )
        x = add([x, y])
        x = Activation("relu")(x)
    x = GlobalAveragePooling2D()(x)
    outputs = Dense(num_classes, kernel_regularizer=l2(WEIGHT_DECAY), name="logits")(x)
    return Model(inputs=inputs, outputs=outputs)


def build():
    return resnet_v1()


def sgd():
    return keras.optimizers.SGD(learning_rate=0.02, momentum=0.9, nesterov=True)
