import keras
import numpy as np
from keras import layers


def conv_bn(x, filters, name):
    x = layers.Conv1D(filters, 1, use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


def tnet(x, k, name):
    y = conv_bn(x, 16, f"{name}_1")
    y = conv_bn(y, 32, f"{name}_2")
    y = layers.GlobalMaxPooling1D(name=f"{name}_max")(y)
    y = layers.Dense(16, activation="relu", name=f"{name}_fc")(y)
    identity = keras.initializers.Constant(np.eye(k).flatten())
    y = layers.Dense(k * k, bias_initializer=identity, name=f"{name}_matrix")(y)
    y = layers.Reshape((k, k), name=f"{name}_reshape")(y)
    return layers.Dot(axes=(2, 1), name=f"{name}_apply")([x, y])


def pointnet(points=48, classes=4):
    cloud = keras.Input((points, 3), name="x")
    x = tnet(cloud, 3, "input_transform")
    x = conv_bn(x, 32, "mlp1")
    x = conv_bn(x, 64, "mlp2")
    x = layers.GlobalMaxPooling1D(name="max")(x)
    x = layers.Dense(32, use_bias=False, name="fc1")(x)
    x = layers.BatchNormalization(name="fc1_bn")(x)
    x = layers.ReLU(name="fc1_relu")(x)
    return keras.Model(cloud, layers.Dense(classes, name="scores")(x), name="pointnet")
