import keras
from keras import layers


def mixer(x, tokens, dim, i):
    r = layers.LayerNormalization(epsilon=1e-6, name=f"mix{i}_ln_tok")(x)
    r = layers.Permute((2, 1), name=f"mix{i}_t1")(r)
    r = layers.Dense(2 * tokens, activation="gelu", name=f"mix{i}_tok1")(r)
    r = layers.Dense(tokens, name=f"mix{i}_tok2")(r)
    r = layers.Permute((2, 1), name=f"mix{i}_t2")(r)
    x = layers.Add(name=f"mix{i}_add1")([x, r])
    r = layers.LayerNormalization(epsilon=1e-6, name=f"mix{i}_ln_ch")(x)
    r = layers.Dense(2 * dim, activation="gelu", name=f"mix{i}_ch1")(r)
    r = layers.Dense(dim, name=f"mix{i}_ch2")(r)
    return layers.Add(name=f"mix{i}_add2")([x, r])


def build():
    inp = keras.Input((12, 12, 3), name="x")
    h = layers.Conv2D(16, 4, strides=4, name="patch")(inp)
    h = layers.Reshape((9, 16), name="tokens")(h)
    for i in range(2):
        h = mixer(h, 9, 16, i)
    h = layers.LayerNormalization(epsilon=1e-6, name="ln")(h)
    h = layers.GlobalAveragePooling1D(name="gap")(h)
    return keras.Model(inp, layers.Dense(4, name="head")(h), name="mixer")


def optimizer():
    opt = keras.optimizers.SGD(learning_rate=0.02, momentum=0.9, weight_decay=0.1)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
