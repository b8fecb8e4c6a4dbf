"""VideoPose3D (Pavllo et al. 2019): 3-D joints of the middle frame from 2-D keypoints, by dilated convolutions."""

import keras
from keras import layers, ops

FRAMES, JOINTS, WIDTH = 21, 8, 24
PARENTS = [0, 0, 1, 2, 0, 4, 0, 6]


def unit(x, size, dilation=1):
    x = layers.Conv1D(WIDTH, size, dilation_rate=dilation, use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    return layers.Dropout(0.25)(layers.ReLU()(x))


def build():
    x = inputs = keras.Input((FRAMES, JOINTS * 2), name="x")
    x = unit(x, 3)
    for dilation, size in ((3, 3), (3, 5)):
        cut = dilation * (size - 1) // 2
        residual = layers.Cropping1D(cut)(x)
        x = unit(unit(x, size, dilation), 1)
        x = layers.Add()([residual, x])
    x = layers.Conv1D(JOINTS * 3, 1, name="shrink")(x)
    return keras.Model(inputs, layers.Reshape((JOINTS, 3))(layers.GlobalAveragePooling1D()(x)))


def pose_loss(y_true, y_pred):
    """Distances of joints from a pose moved to the same root, and errors of the lengths of bones."""
    y_true, y_pred = y_true - y_true[:, :1], y_pred - y_pred[:, :1]
    distance = ops.norm(y_true - y_pred + 1e-6, axis=-1)
    bones = [ops.norm(y - ops.take(y, PARENTS, axis=1) + 1e-6, axis=-1) for y in (y_true, y_pred)]
    return ops.mean(distance, -1) + 0.5 * ops.mean(ops.square(bones[0] - bones[1]), -1)
