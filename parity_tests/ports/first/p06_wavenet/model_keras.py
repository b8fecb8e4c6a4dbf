"""WaveNet-like: dilated causal convolutions with gated activations, next-level prediction."""

import keras
from keras import layers


def build(length=48, levels=16, residual=16, skip=24, dilations=(1, 2, 4, 8)):
    signal = keras.Input((length, 1), name="signal")
    x = layers.Conv1D(residual, 2, padding="causal", name="front")(signal)
    skips = []
    for d in dilations:
        filtered = layers.Conv1D(
            residual, 3, padding="causal", dilation_rate=d, activation="tanh", name=f"filter{d}"
        )(x)
        gate = layers.Conv1D(
            residual, 3, padding="causal", dilation_rate=d, activation="sigmoid", name=f"gate{d}"
        )(x)
        gated = layers.Multiply(name=f"gated{d}")([filtered, gate])
        skips.append(layers.Conv1D(skip, 1, name=f"skip{d}")(gated))
        if d != dilations[-1]:  # nothing reads the last residual
            x = layers.Add(name=f"residual{d}")([x, layers.Conv1D(residual, 1, name=f"mix{d}")(gated)])
    x = layers.ReLU(name="relu1")(layers.Add(name="skips")(skips))
    x = layers.Conv1D(skip, 1, activation="relu", name="post1")(x)
    return keras.Model(signal, layers.Conv1D(levels, 1, name="post2")(x), name="wavenet")
