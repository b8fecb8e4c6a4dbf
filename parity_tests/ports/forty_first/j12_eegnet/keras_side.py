"""EEGNet, microvolts in, three classes out (logits)."""

import keras
import numpy as np
from keras import backend, ops
from keras.layers import (
    Activation,
    AveragePooling2D,
    BatchNormalization,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    Input,
    Lambda,
    SeparableConv2D,
)

CHANNELS, SAMPLES, F1, DEPTH = 8, 64, 6, 2


class UnitBall(keras.constraints.Constraint):
    """Rescales a weight whose norm over the axes is above the radius."""

    def __init__(self, radius, axes):
        self.radius, self.axes = radius, axes

    def __call__(self, w):
        norm = ops.sqrt(ops.sum(ops.square(w), axis=self.axes, keepdims=True))
        return w * ops.minimum(norm, self.radius) / (norm + backend.epsilon())


def car(x):
    """Common average reference, scaled."""
    return (x - ops.mean(x, axis=1, keepdims=True)) * np.float32(0.1)


def build():
    m = keras.Sequential(name="eegnet")
    m.add(Input((CHANNELS, SAMPLES, 1), name="eeg"))
    m.add(Lambda(car, name="car"))
    m.add(Conv2D(F1, (1, 16), padding="same", use_bias=False, name="temporal"))
    m.add(BatchNormalization(name="bn1"))
    m.add(
        DepthwiseConv2D(
            (CHANNELS, 1),
            use_bias=False,
            depth_multiplier=DEPTH,
            depthwise_constraint=UnitBall(0.4, 0),
            name="spatial",
        )
    )
    m.add(BatchNormalization(name="bn2"))
    m.add(Activation("elu", name="elu1"))
    m.add(AveragePooling2D((1, 4), name="pool1"))
    m.add(Dropout(0.25, name="drop1"))
    m.add(SeparableConv2D(F1 * DEPTH, (1, 8), padding="same", use_bias=False, name="separable"))
    m.add(BatchNormalization(name="bn3"))
    m.add(Activation("elu", name="elu2"))
    m.add(AveragePooling2D((1, 4), name="pool2"))
    m.add(Dropout(0.25, name="drop2"))
    m.add(Flatten(name="flat"))
    m.add(Dense(3, kernel_constraint=UnitBall(0.5, 0), name="classes"))
    return m


def optimizer():
    return keras.optimizers.SGD(0.05, momentum=0.9)
