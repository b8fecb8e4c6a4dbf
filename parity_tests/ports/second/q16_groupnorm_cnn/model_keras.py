import keras
from keras import layers


def build(classes=10):
    return keras.Sequential(
        [
            keras.Input((15, 15, 1), name="x"),
            layers.Conv2D(16, 3, padding="same", use_bias=False, name="conv1"),
            layers.GroupNormalization(4, epsilon=1e-5, name="norm1"),
            layers.Activation("relu", name="relu1"),
            layers.AveragePooling2D(3, 2, padding="same", name="pool1"),
            layers.SeparableConv2D(32, 3, padding="same", use_bias=False, name="conv2"),
            layers.GroupNormalization(8, epsilon=1e-5, name="norm2"),
            layers.Activation("relu", name="relu2"),
            layers.Flatten(name="flatten"),
            layers.Dense(classes, name="logits"),
        ]
    )
