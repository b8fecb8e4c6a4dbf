# Churn baseline (from the notebook, cell 14-16)
import tensorflow as tf
from tensorflow.keras import layers as L

CARDINALITIES = [5, 9, 4]
EMB_DIMS = [3, 5, 2]
N_NUM = 6


def dense_block(x, units, drop, tag):
    x = L.Dense(units, use_bias=False, name="dense_" + tag)(x)
    x = L.BatchNormalization(name="bn_" + tag)(x)
    x = L.ReLU(name="relu_" + tag)(x)
    return L.Dropout(drop, name="drop_" + tag)(x)


def build():
    cats = L.Input((len(CARDINALITIES),), dtype="int32", name="cats")
    nums = L.Input((N_NUM,), name="nums")

    embedded = []
    for i, (card, dim) in enumerate(zip(CARDINALITIES, EMB_DIMS)):
        embedded.append(L.Embedding(card, dim, name=f"emb_{i}")(cats[:, i]))
    n = L.BatchNormalization(name="bn_nums")(nums)
    x = L.Concatenate(name="features")(embedded + [n])

    x = dense_block(x, 32, 0.25, "a")
    x = dense_block(x, 16, 0.1, "b")
    out = L.Dense(1, activation="sigmoid", name="churn")(x)
    return tf.keras.Model([cats, nums], out)
