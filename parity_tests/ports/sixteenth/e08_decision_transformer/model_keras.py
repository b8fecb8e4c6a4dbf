"""Decision transformer (Chen et al. 2021): the next action from returns to go, states and actions so far."""

import keras
import numpy as np
from keras import layers, ops


class Block(layers.Layer):
    def __init__(self, width, heads, rate, **kwargs):
        super().__init__(**kwargs)
        self.ln_1 = layers.LayerNormalization(epsilon=1e-5, name="ln_1")
        self.ln_2 = layers.LayerNormalization(epsilon=1e-5, name="ln_2")
        self.attention = layers.MultiHeadAttention(heads, width // heads, dropout=rate, name="attention")
        self.up = layers.Dense(4 * width, activation="silu", name="up")
        self.down = layers.Dense(width, name="down")
        self.dropout = layers.Dropout(rate)

    def call(self, x, mask, training=None):
        h = self.ln_1(x)
        x = x + self.attention(h, h, attention_mask=mask, training=training)
        return x + self.dropout(self.down(self.up(self.ln_2(x))), training=training)


class DecisionTransformer(keras.Model):
    def __init__(self, action=2, width=32, heads=2, blocks=2, horizon=32, rate=0.1):
        super().__init__()
        self.embed_return = layers.Dense(width, name="embed_return")
        self.embed_state = layers.Dense(width, name="embed_state")
        self.embed_action = layers.Dense(width, name="embed_action")
        self.embed_time = layers.Embedding(horizon, width, name="embed_time")
        self.ln = layers.LayerNormalization(epsilon=1e-5, name="ln")
        self.blocks = [Block(width, heads, rate, name=f"block_{i}") for i in range(blocks)]
        self.predict_action = layers.Dense(action, activation="tanh", name="predict_action")

    def call(self, inputs, training=None):
        time = self.embed_time(inputs["timesteps"])
        tokens = [
            self.embed_return(inputs["returns"]) + time,
            self.embed_state(inputs["states"]) + time,
            self.embed_action(inputs["actions"]) + time,
        ]
        steps, width = time.shape[1], time.shape[2]
        # R_1, s_1, a_1, R_2, ...
        x = self.ln(ops.reshape(ops.stack(tokens, axis=2), (-1, 3 * steps, width)))
        real = ops.repeat(inputs["mask"], 3, axis=1) > 0
        causal = np.tril(np.ones((3 * steps, 3 * steps), dtype=bool))
        mask = ops.logical_or(ops.logical_and(real[:, None, :], causal), np.eye(3 * steps, dtype=bool))
        for block in self.blocks:
            x = block(x, mask, training=training)
        return self.predict_action(ops.reshape(x, (-1, steps, 3, width))[:, :, 1])


def build():
    return DecisionTransformer()


def action_loss(y_true, y_pred):
    """Squared errors of the actions that were taken; the last column of the targets is 0 in the padding."""
    actions, real = y_true[..., :-1], y_true[..., -1:]
    return ops.sum(ops.square(actions - y_pred) * real) / (ops.sum(real) * y_pred.shape[-1])
