"""Small PointNet: which primitive does a scanned cloud come from?"""

import keras
import numpy as np
from keras import layers, ops

N_POINTS, N_CLASSES = 48, 4


@keras.saving.register_keras_serializable("clouds")
class UnitSphere(layers.Layer):
    """Moves the centroid to the origin, the farthest point to radius one."""

    def call(self, pts):
        pts = pts - ops.mean(pts, axis=1, keepdims=True)
        r2 = ops.max(ops.sum(ops.square(pts), axis=-1), axis=1)
        return pts / ops.sqrt(r2)[:, None, None]


def mlp(x, widths, prefix):
    for i, w in enumerate(widths):
        x = layers.Conv1D(w, 1, use_bias=False, name=f"{prefix}_conv{i}")(x)
        x = layers.BatchNormalization(name=f"{prefix}_bn{i}")(x)
        x = layers.ReLU(name=f"{prefix}_relu{i}")(x)
    return x


def tnet(x):
    h = mlp(x, (16, 32), "tnet")
    h = layers.GlobalMaxPooling1D()(h)
    h = layers.Dense(16, activation="relu", name="tnet_fc")(h)
    h = layers.Dense(9, kernel_initializer=keras.initializers.RandomNormal(stddev=0.02), name="tnet_delta")(h)
    h = layers.Reshape((3, 3))(h)
    return ops.add(h, np.eye(3, dtype="float32"))


def build():
    cloud = keras.Input((N_POINTS, 3), name="cloud")
    x = UnitSphere()(cloud)
    x = ops.matmul(x, tnet(x))
    r = ops.norm(x, axis=-1, keepdims=True)
    x = layers.Concatenate()([x, r])
    local = mlp(x, (24,), "local")
    h = mlp(local, (48,), "point")
    top = layers.GlobalMaxPooling1D()(h)
    top = layers.RepeatVector(N_POINTS)(top)
    h = layers.Concatenate()([local, top])
    h = layers.Conv1D(32, 1, activation="tanh", name="fuse")(h)
    score = layers.Conv1D(1, 1, name="score")(h)
    att = layers.Softmax(axis=1)(score)
    pooled = ops.sum(att * h, axis=1)
    spread = ops.sqrt(ops.var(h, axis=1) + 1e-4)
    z = layers.Concatenate()([pooled, spread])
    z = layers.LayerNormalization(name="head_norm")(z)
    z = layers.Dense(32, activation="elu", name="head_fc")(z)
    return keras.Model(cloud, layers.Dense(N_CLASSES, name="logits")(z), name="pointnet_s")
