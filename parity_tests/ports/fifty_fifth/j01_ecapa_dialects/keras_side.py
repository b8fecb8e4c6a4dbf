"""ECAPA-TDNN for dialect identification from filterbank frames."""

import keras
from keras import layers, ops

CHANNELS = 16
MFA_CHANNELS = 32
SCALE = 4
SE_UNITS = 8
ATT_UNITS = 12
EMBED = 24
BN = dict(momentum=0.9, epsilon=1e-5)


@keras.saving.register_keras_serializable("ecapa")
class MeanOverFrames(layers.Layer):
    """Mean over the valid frames, kept as (batch, 1, channels)."""

    def call(self, x, mask):
        return ops.sum(x * mask, axis=1, keepdims=True) / ops.sum(mask, axis=1, keepdims=True)


@keras.saving.register_keras_serializable("ecapa")
class AttentiveStatistics(layers.Layer):
    def __init__(self, units, floor=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.floor = floor

    def build(self, input_shape):
        channels = input_shape[-1]
        self.frame = layers.Dense(self.units, name="frame")
        self.frame.build((None, None, 3 * channels))
        self.norm = layers.BatchNormalization(name="norm", **BN)
        self.norm.build((None, None, self.units))
        self.score = layers.Dense(channels, name="score")
        self.score.build((None, None, self.units))

    def moments(self, x, w):
        mean = ops.sum(w * x, axis=1, keepdims=True)
        var = ops.sum(w * ops.square(x - mean), axis=1, keepdims=True)
        return mean, ops.sqrt(ops.maximum(var, self.floor))

    def call(self, x, mask, training=None):
        uniform = mask / ops.sum(mask, axis=1, keepdims=True)
        mean, std = self.moments(x, uniform)
        like = ops.ones_like(x)
        context = ops.concatenate([x, mean * like, std * like], axis=-1)
        h = self.norm(ops.relu(self.frame(context)), training=training)
        logits = self.score(ops.tanh(h))
        logits = ops.where(mask > 0, logits, -1e9)
        alpha = ops.softmax(logits, axis=1)
        mean, std = self.moments(x, alpha)
        return ops.squeeze(ops.concatenate([mean, std], axis=-1), axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 2 * input_shape[-1])


def tdnn(x, filters, kernel=1, dilation=1, name=None):
    x = layers.Conv1D(filters, kernel, dilation_rate=dilation, padding="same", name=f"{name}_conv")(x)
    x = layers.Activation("relu", name=f"{name}_relu")(x)
    return layers.BatchNormalization(name=f"{name}_bn", **BN)(x)


def res2(x, dilation, name):
    parts = ops.split(x, SCALE, axis=-1)
    outs = [parts[0]]
    for i in range(1, SCALE):
        y = parts[i] if i == 1 else parts[i] + outs[-1]
        outs.append(tdnn(y, CHANNELS // SCALE, 3, dilation, name=f"{name}_{i}"))
    return layers.Concatenate(name=f"{name}_cat")(outs)


def squeeze_excite(x, mask, name):
    s = MeanOverFrames(name=f"{name}_squeeze")(x, mask)
    s = layers.Dense(SE_UNITS, activation="relu", name=f"{name}_down")(s)
    s = layers.Dense(x.shape[-1], activation="sigmoid", name=f"{name}_up")(s)
    return layers.Multiply(name=f"{name}_scale")([x, s])


def se_res2_block(x, mask, dilation, name):
    shortcut = x
    x = tdnn(x, CHANNELS, name=f"{name}_in")
    x = res2(x, dilation, name=f"{name}_res2")
    x = tdnn(x, CHANNELS, name=f"{name}_out")
    x = squeeze_excite(x, mask, name=f"{name}_se")
    return layers.Add(name=f"{name}_add")([x, shortcut])


def build(frames=36, bands=16, classes=5, dilations=(2, 3, 4)):
    fbank = keras.Input((frames, bands), name="fbank")
    length = keras.Input((), dtype="int32", name="frames")
    mask = ops.cast(ops.less(ops.arange(frames)[None, :], ops.expand_dims(length, -1)), fbank.dtype)
    mask = ops.expand_dims(mask, -1)

    # mean normalisation of the utterance
    x = fbank - MeanOverFrames(name="cmn")(fbank, mask)
    x = tdnn(x, CHANNELS, 5, name="stem")
    taps = []
    total = x
    for i, dilation in enumerate(dilations):
        x = se_res2_block(total, mask, dilation, name=f"block{i + 1}")
        taps.append(x)
        total = total + x
    x = layers.Concatenate(name="mfa_cat")(taps)
    x = tdnn(x, MFA_CHANNELS, name="mfa")
    x = AttentiveStatistics(ATT_UNITS, name="asp")(x, mask)
    x = layers.BatchNormalization(name="asp_bn", **BN)(x)
    x = layers.Dense(EMBED, name="embedding")(x)
    x = layers.BatchNormalization(name="embedding_bn", **BN)(x)
    logits = layers.Dense(classes, name="dialect")(x)
    return keras.Model({"fbank": fbank, "frames": length}, logits, name="ecapa")
