import keras
import numpy as np
from keras import layers, ops

CARDINALITY = {"purpose": 7, "home": 4, "state": 12, "grade": 6}
FICO_EDGES = [580.0, 620.0, 660.0, 700.0, 740.0, 780.0]
#            income  dti   util  age_of_file  inquiries
NUM_MEAN = np.array([11.0, 18.0, 0.45, 12.0, 1.2], dtype=np.float32)
NUM_STD = np.array([0.55, 8.0, 0.22, 6.0, 1.1], dtype=np.float32)
EMB, RANK, N_CROSS = 4, 6, 3
LR_OF = {"emb": 0.25, "cross": 0.1}


class LowRankCross(layers.Layer):
    """DCN v2: x0 * (x V U + b) + x"""

    def __init__(self, rank, **kw):
        super().__init__(**kw)
        self.rank = rank

    def build(self, x0_shape, x_shape):
        d = x0_shape[-1]
        self.v = self.add_weight(name="v", shape=(d, self.rank), initializer="glorot_normal")
        self.u = self.add_weight(name="u", shape=(self.rank, d), initializer="glorot_normal")
        self.b = self.add_weight(name="b", shape=(d,), initializer="zeros")

    def call(self, x0, x):
        return x0 * (ops.matmul(ops.matmul(x, self.v), self.u) + self.b) + x


def build():
    cat = keras.Input((len(CARDINALITY),), dtype="int32", name="cat")
    num = keras.Input((6,), name="num")  # fico, income, dti, util, age of file, inquiries

    parts = [
        layers.Embedding(n, EMB, name="emb_" + k)(cat[:, i]) for i, (k, n) in enumerate(CARDINALITY.items())
    ]
    bucket = layers.Discretization(bin_boundaries=FICO_EDGES, name="fico_bucket")(num[:, 0])
    parts.append(layers.Embedding(len(FICO_EDGES) + 1, EMB, name="emb_fico")(bucket))
    rest = ops.concatenate([ops.log1p(num[:, 1:2]), num[:, 2:]], axis=-1)
    parts.append((rest - NUM_MEAN) / NUM_STD)
    x0 = layers.Concatenate(name="x0")(parts)

    x = x0
    for i in range(N_CROSS):
        x = LowRankCross(RANK, name=f"cross_{i}")(x0, x)

    h = x0
    for i, units in enumerate((32, 16)):
        h = layers.Dense(units, use_bias=False, name=f"deep_{i}")(h)
        h = layers.BatchNormalization(momentum=0.95, name=f"deep_bn_{i}")(h)
        h = layers.LeakyReLU(negative_slope=0.1)(h)
    h = layers.Dropout(0.1)(h)
    logit = layers.Dense(1, name="default")(layers.Concatenate()([x, h]))
    return keras.Model({"cat": cat, "num": num}, logit, name="dcn")


def focal(y_true, y_pred):
    return keras.losses.binary_focal_crossentropy(y_true, y_pred, alpha=0.75, gamma=2.0, from_logits=True)


class GroupedAdagrad(keras.optimizers.Adagrad):
    """Adagrad with a factor on the learning rate of embeddings and crosses."""

    def update_step(self, gradient, variable, learning_rate):
        path = self._trainable_variables[self._get_variable_index(variable)].path
        factor = LR_OF.get(path.split("_")[0], 1.0)
        super().update_step(gradient, variable, learning_rate * factor)


def optimizer():
    return GroupedAdagrad(learning_rate=0.1, initial_accumulator_value=0.1)
