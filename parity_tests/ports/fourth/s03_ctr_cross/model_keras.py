import keras
from keras import layers, regularizers

FIELDS = {"device": 6, "site": 30, "campaign": 50}
PENALTY = 5e-4


@keras.saving.register_keras_serializable("ctr")
class Cross(layers.Layer):
    """x0 * (W x + b) + x"""

    def build(self, shape):
        width = shape[0][-1]
        self.kernel = self.add_weight(
            shape=(width, width),
            name="kernel",
            regularizer=regularizers.L2(PENALTY),
            initializer="glorot_uniform",
        )
        self.bias = self.add_weight(shape=(width,), name="bias", initializer="zeros")

    def call(self, inputs):
        first, x = inputs
        return first * (keras.ops.matmul(x, self.kernel) + self.bias) + x


def build():
    l2 = regularizers.L2(PENALTY)
    numbers = keras.Input((9,), name="numbers")
    inputs, parts = [numbers], [layers.LayerNormalization(name="numbers_norm", epsilon=1e-6)(numbers)]
    for field, size in FIELDS.items():
        index = keras.Input((), name=field, dtype="int32")
        inputs.append(index)
        parts.append(layers.Embedding(size, 6, embeddings_regularizer=l2, name=f"{field}_table")(index))
    first = layers.Concatenate(name="features")(parts)
    x = first
    for i in range(3):
        x = Cross(name=f"cross{i}")([first, x])
    deep = first
    for i, units in enumerate((48, 24)):
        deep = layers.Dense(units, activation="relu", kernel_regularizer=l2, name=f"deep{i}")(deep)
        deep = layers.Dropout(0.25, name=f"deep{i}_drop")(deep)
    both = layers.Concatenate(name="both")([x, deep])
    click = layers.Dense(1, kernel_regularizer=l2, name="click")(both)
    return keras.Model(inputs, click)


def optimizer():
    return keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True)
