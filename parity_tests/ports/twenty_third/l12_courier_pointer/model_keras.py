"""Dispatch: which of up to nine open orders should a courier take next.

courier (N, 4), orders (N, 9, 5), valid (N, 9) true for real orders.
Output: one logit per order, padded orders get a very low one.
"""

import keras
from keras import layers, ops

MAX_ORDERS, N_COURIER, N_ORDER = 9, 4, 5
DIM, HEADS = 18, 3


class PairMask(layers.Layer):
    """valid (N, K) -> (N, 1, K): every query may look at the real orders only."""

    def call(self, valid):
        return valid[:, None, :] > 0.5


class MaskedMean(layers.Layer):
    def call(self, x, valid):
        w = valid[..., None]
        return ops.sum(x * w, axis=1) / ops.sum(w, axis=1)


class Pointer(layers.Layer):
    """Additive pointer scores, squeezed to +-10 and masked."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.from_state = layers.Dense(units, use_bias=False, name="from_state")
        self.from_order = layers.Dense(units, name="from_order")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def build(self, state_shape, orders_shape=None, valid_shape=None):
        self.from_state.build(state_shape)
        self.from_order.build((None, MAX_ORDERS, DIM))
        self.score.build((None, MAX_ORDERS, self.from_state.units))
        super().build(state_shape)

    def call(self, state, orders, valid):
        hidden = ops.tanh(self.from_state(state)[:, None, :] + self.from_order(orders))
        logits = 10.0 * ops.tanh(ops.squeeze(self.score(hidden), axis=-1))
        return ops.where(valid > 0.5, logits, -1e9)


def build():
    courier = keras.Input((N_COURIER,), name="courier")
    orders = keras.Input((MAX_ORDERS, N_ORDER), name="orders")
    valid = keras.Input((MAX_ORDERS,), name="valid")

    x = layers.Dense(DIM, name="order_embed")(orders)
    attended = layers.MultiHeadAttention(HEADS, key_dim=4, name="attention")(
        x, x, attention_mask=PairMask(name="pairs")(valid)
    )
    x = layers.LayerNormalization(epsilon=1e-5, name="norm1")(x + attended)
    h = layers.Dense(2 * DIM, activation="relu", name="fc1")(x)
    h = layers.Dense(DIM, name="fc2")(h)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm2")(x + h)

    who = layers.Dense(12, activation="tanh", name="courier_embed")(courier)
    overview = MaskedMean(name="overview")(x, valid)
    state = layers.Concatenate(name="state")([who, overview])
    logits = Pointer(16, name="pointer")(state, x, valid)
    return keras.Model([courier, orders, valid], logits, name="dispatch")
