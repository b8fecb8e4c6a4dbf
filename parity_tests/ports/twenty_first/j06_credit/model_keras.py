import keras
from keras import layers, ops

CARDS = (5, 7, 3, 11)
MISSING = -999.0


def build():
    cat = keras.Input((len(CARDS),), dtype="int32", name="cat")
    num = keras.Input((6,), name="num")

    codes = [layers.Embedding(n, 4, name=f"code{i}")(cat[:, i]) for i, n in enumerate(CARDS)]
    absent = ops.cast(ops.equal(num, MISSING), num.dtype)
    filled = num * (1.0 - absent)
    x = layers.Concatenate()(codes + [filled, absent])

    two = layers.Dense(64, name="glu")(x)
    value, gate = ops.split(two, 2, axis=-1)
    deep = layers.Dense(24, activation="elu", name="deep")(value * ops.sigmoid(gate))

    cross = x
    for i in range(2):
        cross = x * layers.Dense(28, name=f"cross{i}")(cross) + cross

    both = layers.Concatenate()([deep, cross])
    logit = layers.Dense(1, name="logit")(both)
    return keras.Model({"cat": cat, "num": num}, logit)
