import keras
from keras import layers, ops

FIELDS = {"user": 40, "item": 30, "city": 12, "device": 4}
DENSE = 6
DIM = 8


class FactorizationMachine(layers.Layer):
    """Second-order interactions of all fields, Rendle's sum-of-squares form."""

    def call(self, v):
        squared_sum = ops.square(ops.sum(v, axis=1))
        sum_of_squares = ops.sum(ops.square(v), axis=1)
        return 0.5 * ops.sum(squared_sum - sum_of_squares, axis=1, keepdims=True)


def build():
    sparse = keras.Input((len(FIELDS),), dtype="int32", name="sparse")
    dense = keras.Input((DENSE,), name="dense")
    columns = [sparse[:, i : i + 1] for i in range(len(FIELDS))]
    first = [layers.Embedding(n, 1, name=f"linear_{f}")(c) for (f, n), c in zip(FIELDS.items(), columns)]
    second = [layers.Embedding(n, DIM, name=f"factor_{f}")(c) for (f, n), c in zip(FIELDS.items(), columns)]
    scaled = layers.LayerNormalization(name="dense_norm")(dense)
    projected = layers.Reshape((1, DIM))(layers.Dense(DIM, use_bias=False, name="dense_factor")(scaled))
    v = layers.Concatenate(axis=1)([*second, projected])
    linear = layers.Add()(
        [*[layers.Flatten()(x) for x in first], layers.Dense(1, name="linear_dense")(scaled)]
    )
    deep = layers.Concatenate()([layers.Flatten()(v), scaled])
    for i, units in enumerate((48, 24)):
        deep = layers.Dense(units, name=f"deep_{i}")(deep)
        deep = layers.PReLU(name=f"prelu_{i}")(deep)
        deep = layers.Dropout(0.2)(deep)
    click = layers.Add(name="click")(
        [linear, FactorizationMachine()(v), layers.Dense(1, name="deep_out")(deep)]
    )
    return keras.Model([sparse, dense], click)


def optimizer():
    opt = keras.optimizers.AdamW(learning_rate=2e-3, weight_decay=1e-2, epsilon=1e-8)
    opt.exclude_from_weight_decay(var_names=["bias", "embeddings", "alpha", "gamma", "beta"])
    return opt
