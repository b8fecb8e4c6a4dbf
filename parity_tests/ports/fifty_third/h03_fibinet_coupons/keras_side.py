# Coupon redemption at the till, FiBiNET (Huang et al., RecSys 2019)
from itertools import combinations

import tensorflow as tf
from tensorflow.keras import backend as K
from tensorflow.keras.layers import (
    Activation,
    Concatenate,
    Dense,
    Embedding,
    Flatten,
    Input,
    Lambda,
    Multiply,
    Reshape,
)
from tensorflow.keras.models import Model

SPARSE = [("store", 40), ("category", 25), ("segment", 8), ("weekday", 7), ("channel", 5)]
EMB = 8


def senet(stacked, reduction=2):
    """stacked: (batch, fields, emb)"""
    fields = K.int_shape(stacked)[1]
    z = Lambda(lambda t: K.mean(t, axis=-1), output_shape=(fields,), name="squeeze")(stacked)
    a = Dense(
        max(1, fields // reduction),
        activation="relu",
        use_bias=False,
        kernel_initializer="glorot_normal",
        name="excite_1",
    )(z)
    a = Dense(fields, activation="relu", use_bias=False, kernel_initializer="glorot_normal", name="excite_2")(
        a
    )
    a = Reshape((fields, 1))(a)
    return Multiply(name="reweight")([stacked, a])


def bilinear(stacked, name):
    """field-each bilinear interactions: (v_i W_i) * v_j for i < j"""
    fields, emb = K.int_shape(stacked)[1:]
    columns = [
        Lambda(lambda t, i=i: t[:, i, :], output_shape=(emb,), name=f"{name}_col{i}")(stacked)
        for i in range(fields)
    ]
    turned = [Dense(emb, use_bias=False, name=f"{name}_w{i}")(columns[i]) for i in range(fields - 1)]
    products = [Multiply()([turned[i], columns[j]]) for i, j in combinations(range(fields), 2)]
    return Concatenate(name=name)(products)


def build():
    inputs, vectors, linear = [], [], []
    for field, size in SPARSE:
        inp = Input(shape=(1,), dtype="int32", name=field)
        inputs.append(inp)
        vectors.append(Embedding(size, EMB, embeddings_initializer="uniform", name="emb_" + field)(inp))
        linear.append(Flatten()(Embedding(size, 1, name="lin_" + field)(inp)))
    basket = Input(shape=(3,), name="basket")
    inputs.append(basket)

    stacked = Concatenate(axis=1, name="fields")(vectors)
    crosses = Concatenate(name="crosses")(
        [
            bilinear(stacked, "raw"),
            bilinear(senet(stacked), "se"),
        ]
    )
    logs = Lambda(lambda t: K.log(1.0 + t), output_shape=(3,), name="log_basket")(basket)
    deep = Concatenate()([crosses, logs])
    for i, units in enumerate((48, 24)):
        deep = Dense(units, kernel_initializer="he_normal", name=f"deep_{i}")(deep)
        deep = Activation("relu")(deep)
    deep = Dense(1, use_bias=False, name="deep_out")(deep)

    wide = Lambda(lambda ts: tf.add_n(ts), output_shape=(1,), name="wide")(linear)
    wide = Lambda(lambda ts: ts[0] + ts[1], output_shape=(1,))([wide, Dense(1, name="wide_basket")(logs)])
    logit = Lambda(lambda ts: ts[0] + ts[1], output_shape=(1,), name="logit")([wide, deep])
    return Model(inputs=inputs, outputs=Activation("sigmoid", name="redeemed")(logit))
