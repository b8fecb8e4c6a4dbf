"""Two sLSTM blocks on the warp tension of a loom: at every pick the tension of the next one."""

import keras
from keras import initializers, layers, ops

DIM = 12
HEADS = 3
INNER = 16


class SLSTMCell(layers.Layer):
    """Exponential input gate, memory mixing within the heads only."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.wide = DIM // HEADS
        small = initializers.RandomNormal(stddev=0.4)
        self.from_input = {g: layers.Dense(DIM, use_bias=False, name=f"{g}_in") for g in "zifo"}
        self.from_state = {
            g: layers.EinsumDense(
                "bhd,hde->bhe",
                (HEADS, self.wide),
                bias_axes="he",
                kernel_initializer=small,
                bias_initializer="ones" if g == "f" else "zeros",
                name=f"{g}_rec",
            )
            for g in "zifo"
        }

    def build(self, shape):
        for g in "zifo":
            self.from_input[g].build((None, DIM))
            self.from_state[g].build((None, HEADS, self.wide))
        self.built = True

    def call(self, x, smooth):
        batch, steps = ops.shape(x)[0], x.shape[1]
        pre = {
            g: ops.reshape(self.from_input[g](smooth if g in "if" else x), (-1, steps, HEADS, self.wide))
            for g in "zifo"
        }
        h = c = n = m = ops.zeros((batch, HEADS, self.wide), dtype=x.dtype)
        out = []
        for t in range(steps):
            z, i, f, o = (pre[g][:, t] + self.from_state[g](h) for g in "zifo")
            f = ops.log_sigmoid(f)
            top = ops.maximum(f + m, i)
            keep, take = ops.exp(f + m - top), ops.exp(i - top)
            c = keep * c + take * ops.tanh(z)
            n = keep * n + take
            m = top
            h = ops.sigmoid(o) * c / (n + ops.exp(-m))
            out.append(h)
        return ops.stack(out, axis=1)  # (batch, steps, heads, wide)


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm_1 = layers.LayerNormalization(epsilon=1e-5, name="norm_1")
        self.smooth = layers.Conv1D(DIM, 3, padding="causal", groups=DIM, activation="silu", name="smooth")
        self.cell = SLSTMCell(name="cell")
        self.head_norm = layers.GroupNormalization(HEADS, epsilon=1e-5, name="head_norm")
        self.norm_2 = layers.LayerNormalization(epsilon=1e-5, name="norm_2")
        self.gate = layers.Dense(INNER, activation="silu", name="gate")
        self.up = layers.Dense(INNER, name="up")
        self.down = layers.Dense(DIM, name="down")

    def build(self, shape):
        for part in (self.norm_1, self.smooth, self.norm_2, self.gate, self.up):
            part.build(shape)
        self.cell.build(shape)
        self.head_norm.build((None, DIM))
        self.down.build((None, None, INNER))
        self.built = True

    def call(self, x):
        y = self.norm_1(x)
        h = self.cell(y, self.smooth(y))
        # each pick by itself, over the units of a head
        h = self.head_norm(ops.reshape(h, (-1, DIM)))
        x = x + ops.reshape(h, ops.shape(x))
        y = self.norm_2(x)
        return x + self.down(self.gate(y) * self.up(y))


def build():
    picks = keras.Input((12, 4), name="picks")
    x = layers.Dense(DIM, name="embed")(picks)
    for i in range(2):
        x = Block(name=f"block_{i}")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Dense(1, name="tension")(x)
    return keras.Model(picks, layers.Reshape((12,))(x), name="loom")


def optimizer():
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([15, 30], [0.0625, 0.03125, 0.0078125])
    return keras.optimizers.SGD(rate)
