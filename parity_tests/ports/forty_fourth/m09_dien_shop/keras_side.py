"""Deep interest evolution: does a visitor click the candidate, given what he looked at?"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

ITEMS = 121
CATEGORIES = 13
SEGMENTS = 6
STEPS = 12
HIDDEN = 24
AUXILIARY = 0.5

# category of each item; 0 is padding
CATEGORY = np.concatenate([[0], 1 + (np.arange(1, ITEMS) * 7) % (CATEGORIES - 1)]).astype("int32")


class AttentionalUpdateCell(layers.Layer):
    """GRU whose update gate is scaled by the attention on the step (last input feature)."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = units
        self.output_size = units

    def build(self, shape):
        d, u = shape[-1] - 1, self.units
        self.kernel = self.add_weight(shape=(d, 3 * u), initializer="glorot_uniform", name="kernel")
        self.recurrent = self.add_weight(shape=(u, 3 * u), initializer="orthogonal", name="recurrent_kernel")
        self.bias = self.add_weight(shape=(3 * u,), initializer="zeros", name="bias")

    def call(self, inputs, states):
        h = states[0]
        x, attention = inputs[:, :-1], inputs[:, -1:]
        xr, xu, xn = ops.split(ops.matmul(x, self.kernel) + self.bias, 3, axis=-1)
        hr, hu, hn = ops.split(ops.matmul(h, self.recurrent), 3, axis=-1)
        reset = ops.sigmoid(xr + hr)
        update = attention * ops.sigmoid(xu + hu)
        new = ops.tanh(xn + reset * hn)
        h = (1.0 - update) * h + update * new
        return h, [h]


class TargetAttention(layers.Layer):
    """Bilinear score of each state against the candidate, softmax over real steps."""

    def build(self, states_shape, candidate_shape):
        self.kernel = self.add_weight(
            shape=(states_shape[-1], candidate_shape[-1]), initializer="glorot_uniform", name="kernel"
        )

    def call(self, states, candidate, real):
        score = ops.einsum("bth,hd,bd->bt", states, self.kernel, candidate)
        score = ops.where(real, score, -1e9)
        return ops.softmax(score, axis=-1)


class NextItemLoss(layers.Layer):
    """Auxiliary loss a sample: the state at a step should tell the item of the next one from a drawn one."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(32, activation="sigmoid", name="aux_hidden")
        self.score = layers.Dense(1, name="aux_score")

    def build(self, states_shape, items_shape):
        d = states_shape[-1] + items_shape[-1]
        self.hidden.build((None, None, d))
        self.score.build((None, None, 32))

    def logit(self, states, items):
        return self.score(self.hidden(ops.concatenate([states, items], -1)))[..., 0]

    def call(self, states, items, negatives, real):
        now = states[:, :-1]
        good = self.logit(now, items[:, 1:])
        bad = self.logit(now, negatives[:, 1:])
        loss = ops.softplus(-good) + ops.softplus(bad)
        weight = ops.cast(real[:, 1:], loss.dtype)
        return ops.sum(loss * weight, -1) / ops.sum(weight, -1)


class Clicks(keras.Model):
    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            y = ops.reshape(ops.cast(y, out["click"].dtype), (-1, 1))
            loss = ops.mean(keras.losses.binary_crossentropy(y, out["click"], from_logits=True))
            loss = loss + AUXILIARY * ops.mean(out["auxiliary"])
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    segment = keras.Input((), dtype="int32", name="segment")
    history = keras.Input((STEPS,), dtype="int32", name="history")
    negatives = keras.Input((STEPS,), dtype="int32", name="negatives")
    candidate = keras.Input((), dtype="int32", name="candidate")

    item = layers.Embedding(ITEMS, 16, name="item")
    category = layers.Embedding(CATEGORIES, 8, name="category")

    def embed(ids):
        kinds = ops.take(ops.convert_to_tensor(CATEGORY), ids, axis=0)
        return layers.Concatenate()([item(ids), category(kinds)])

    real = ops.not_equal(history, 0)
    seen, other, wanted = embed(history), embed(negatives), embed(candidate)

    interest = layers.GRU(HIDDEN, return_sequences=True, name="interest")(seen, mask=real)
    auxiliary = NextItemLoss(name="next_item")(interest, seen, other, real)
    attention = TargetAttention(name="attention")(interest, wanted, real)
    evolved = layers.RNN(AttentionalUpdateCell(HIDDEN), name="evolution")(
        ops.concatenate([interest, ops.expand_dims(attention, -1)], axis=-1)
    )

    pooled = ops.sum(seen * ops.cast(ops.expand_dims(real, -1), seen.dtype), axis=1)
    x = layers.Concatenate()(
        [
            layers.Embedding(SEGMENTS, 8, name="segment_embedding")(segment),
            wanted,
            pooled,
            pooled * wanted,
            evolved,
        ]
    )
    for units in (48, 24):
        x = layers.PReLU(alpha_initializer=keras.initializers.Constant(0.1))(layers.Dense(units)(x))
    click = layers.Dense(1, name="logit")(x)
    return Clicks(
        inputs={"segment": segment, "history": history, "negatives": negatives, "candidate": candidate},
        outputs={"click": click, "auxiliary": auxiliary},
    )
