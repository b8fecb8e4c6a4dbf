"""Two tasks of a video feed, click and watch time, from a mixture of experts with a gate for each task."""

import keras
from keras import layers, ops

SIZES = {"user": 40, "video": 60, "hour": 24}


class FieldWeights(layers.Layer):
    """Squeeze-and-excitation over the fields of an embedding matrix (batch, fields, dim)."""

    def __init__(self, reduction=2, **kwargs):
        super().__init__(**kwargs)
        self.reduction = reduction

    def build(self, shape):
        fields = shape[1]
        self.squeeze = self.add_weight(shape=(fields, max(1, fields // self.reduction)), name="squeeze")
        self.excite = self.add_weight(shape=(max(1, fields // self.reduction), fields), name="excite")

    def call(self, x):
        z = ops.mean(x, axis=-1)
        a = ops.sigmoid(ops.matmul(ops.relu(ops.matmul(z, self.squeeze)), self.excite))
        return x * (2 * a)[:, :, None]


class Experts(layers.Layer):
    def __init__(self, experts, units, **kwargs):
        super().__init__(**kwargs)
        self.experts, self.units = experts, units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(self.experts, shape[-1], self.units), name="kernel")
        self.bias = self.add_weight(shape=(self.experts, self.units), initializer="zeros", name="bias")

    def call(self, x):
        return ops.relu(ops.einsum("bi,eio->beo", x, self.kernel) + self.bias)


def build(dim=6, experts=4, units=16):
    inputs = {name: keras.Input((), dtype="int32", name=name) for name in SIZES}
    context = keras.Input((5,), name="context")
    fields = [
        layers.Embedding(size, dim, name=f"{name}_embedding")(inputs[name]) for name, size in SIZES.items()
    ]
    fields = FieldWeights(name="senet")(ops.stack(fields, axis=1))
    x = layers.Concatenate()(
        [layers.Flatten()(fields), layers.BatchNormalization(momentum=0.9, name="context_norm")(context)]
    )
    mixture = Experts(experts, units, name="experts")(x)
    outputs = {}
    for task in ("click", "watch"):
        gate = layers.Dense(experts, activation="softmax", name=f"{task}_gate")(x)
        h = ops.einsum("be,beo->bo", gate, mixture)
        h = layers.Dropout(0.2)(layers.Dense(12, activation="relu", name=f"{task}_tower")(h))
        outputs[task] = layers.Dense(1, name=f"{task}_output")(h)
    return keras.Model({**inputs, "context": context}, outputs)
