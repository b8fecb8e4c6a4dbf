import keras
from keras import layers, ops

QUANTILES = (0.1, 0.5, 0.9)


class GRN(layers.Layer):
    def __init__(self, units, outputs=None, context=False, skip=False, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        outputs = outputs or units
        self.hidden = layers.Dense(units, name="hidden")
        self.context = layers.Dense(units, use_bias=False, name="context") if context else None
        self.linear = layers.Dense(units, name="linear")
        self.drop = layers.Dropout(dropout)
        self.value = layers.Dense(outputs, name="value")
        self.gate = layers.Dense(outputs, activation="sigmoid", name="gate")
        self.skip = layers.Dense(outputs, name="skip") if skip else None
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")

    def call(self, x, context=None, training=None):
        h = self.hidden(x)
        if context is not None:
            h = h + self.context(context)
        h = self.drop(self.linear(ops.elu(h)), training=training)
        residual = x if self.skip is None else self.skip(x)
        return self.norm(residual + self.value(h) * self.gate(h))


def build(dim=8, variables=5, steps=10, heads=2):
    static = keras.Input((4,), name="static")
    past = keras.Input((steps, variables), name="past")
    context = GRN(dim, skip=True, name="static_grn")(static)

    embedded = ops.stack(
        [layers.Dense(dim, name=f"variable{i}")(past[..., i : i + 1]) for i in range(variables)], axis=2
    )
    flat = layers.Reshape((steps, variables * dim))(embedded)
    tiled = layers.RepeatVector(steps)(context)
    weights = layers.Softmax()(
        GRN(dim, variables, context=True, skip=True, name="selection")(flat, context=tiled)
    )
    x = ops.einsum("btv,btvd->btd", weights, embedded)

    value = layers.Dense(dim // heads, name="shared_value")(x)
    causal = ops.tril(ops.ones((steps, steps), dtype="bool"))
    total = 0
    for i in range(heads):
        q = layers.Dense(dim // heads, name=f"query{i}")(x)
        k = layers.Dense(dim // heads, name=f"key{i}")(x)
        scores = ops.einsum("bqd,bkd->bqk", q, k) / (dim // heads) ** 0.5
        total = total + ops.softmax(ops.where(causal, scores, -1e9), axis=-1)
    attended = layers.Dense(dim, name="attended")(ops.matmul(total / heads, value))
    x = layers.LayerNormalization(epsilon=1e-6, name="post_norm")(x + attended)
    x = GRN(dim, name="final_grn")(x[:, -1])
    return keras.Model([static, past], layers.Dense(len(QUANTILES), name="quantiles")(x))


def pinball(y_true, y_pred):
    loss = 0.0
    for i, q in enumerate(QUANTILES):
        error = ops.reshape(y_true, (-1,)) - y_pred[:, i]
        loss = loss + ops.maximum(q * error, (q - 1) * error)
    return loss
