import keras
from keras import layers, ops

ALPHA = [0.25, 1.0, 2.0, 0.6]
GAMMA = 2.0


def se_block(x, channels, name):
    s = layers.GlobalAveragePooling1D(name=f"{name}_gap")(x)
    s = layers.Dense(channels // 4, activation="relu", name=f"{name}_squeeze")(s)
    s = layers.Dense(channels, activation="sigmoid", name=f"{name}_excite")(s)
    s = layers.Reshape((1, channels), name=f"{name}_shape")(s)
    return layers.Multiply(name=f"{name}_mul")([x, s])


def build():
    inp = keras.Input((50, 3), name="x")
    h = layers.Conv1D(16, 7, strides=2, padding="same", name="stem")(inp)
    h = layers.LayerNormalization(epsilon=1e-5, name="stem_norm")(h)
    h = layers.Activation("silu", name="stem_act")(h)
    for i in range(2):
        r = layers.Conv1D(16, 3, padding="same", name=f"res{i}_a")(h)
        r = layers.LayerNormalization(epsilon=1e-5, name=f"res{i}_norm")(r)
        r = layers.Activation("silu", name=f"res{i}_act")(r)
        r = layers.Conv1D(16, 3, padding="same", name=f"res{i}_b")(r)
        r = se_block(r, 16, f"res{i}_se")
        h = layers.Add(name=f"res{i}_add")([h, r])
    h = layers.GlobalMaxPooling1D(name="pool")(h)
    out = layers.Dense(4, name="logits")(h)
    return keras.Model(inp, out, name="ecg")


def focal(y_true, y_pred):
    y = ops.cast(ops.reshape(y_true, (-1,)), "int32")
    logp = ops.log_softmax(y_pred, axis=-1)
    hot = ops.one_hot(y, y_pred.shape[-1], dtype=logp.dtype)
    logpt = ops.sum(hot * logp, axis=-1)
    pt = ops.exp(logpt)
    alpha = ops.sum(hot * ops.convert_to_tensor(ALPHA, dtype=logp.dtype), axis=-1)
    return -alpha * (1.0 - pt) ** GAMMA * logpt
