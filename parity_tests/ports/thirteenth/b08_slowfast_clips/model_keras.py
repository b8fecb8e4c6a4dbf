"""SlowFast on tiny clips: a slow pathway of few frames and many channels, a fast one of all frames."""

import keras
from keras import layers, ops


def unit(x, channels, kernel, stride=1, name=None):
    x = layers.Conv3D(
        channels, kernel, strides=(1, stride, stride), padding="same", use_bias=False, name=name
    )(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)
    return layers.ReLU()(x)


def residual(x, channels, temporal, name):
    y = unit(x, channels, (temporal, 1, 1), name=f"{name}_a")
    y = layers.Conv3D(x.shape[-1], (1, 3, 3), padding="same", name=f"{name}_b")(y)
    return layers.ReLU()(layers.Add()([x, y]))


def build(frames=8, size=8, classes=3, alpha=4):
    clip = keras.Input((frames, size, size, 1), name="clip")
    slow = clip[:, ::alpha]
    fast = unit(clip, 3, (5, 3, 3), stride=2, name="fast_stem")
    slow = unit(slow, 8, (1, 3, 3), stride=2, name="slow_stem")
    for i in range(2):
        lateral = layers.Conv3D(6, (5, 1, 1), strides=(alpha, 1, 1), padding="same", name=f"lateral_{i}")(
            fast
        )
        slow = layers.Concatenate()([slow, lateral])
        slow = unit(slow, 8, (1, 1, 1), name=f"fuse_{i}")
        slow = residual(slow, 4, 1 if i == 0 else 3, name=f"slow_{i}")
        fast = residual(fast, 3, 3, name=f"fast_{i}")
    pooled = [layers.GlobalAveragePooling3D()(slow), layers.GlobalMaxPooling3D()(fast)]
    return keras.Model(clip, layers.Dense(classes, name="classes")(layers.Concatenate()(pooled)))


def focal(y_true, y_pred):
    """Focal cross-entropy (gamma 2) with smoothed labels."""
    classes = y_pred.shape[-1]
    target = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), classes, dtype=y_pred.dtype)
    target = target * (1 - 0.1) + 0.1 / classes
    logp = ops.log_softmax(y_pred)
    return -ops.sum(target * ops.square(1 - ops.exp(logp)) * logp, axis=-1)
