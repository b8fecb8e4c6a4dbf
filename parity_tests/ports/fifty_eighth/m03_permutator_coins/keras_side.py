"""Vision permutator that tells ancient coins apart, fine-tuned with rates that fall towards the stem."""

import math

import keras
from keras import layers, ops

DEPTHS = (1, 2)
WIDTHS = (12, 18)
SEGMENTS = 6
MINTS = 5
STEPS = 60


class PermuteMLP(layers.Layer):
    """Weighted permute-MLP: mixes height, width and channels apart, then weighs the three."""

    def __init__(self, dim, segments, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.segments = dim, segments
        self.mix_h = layers.Dense(dim, use_bias=False, name="mix_h")
        self.mix_w = layers.Dense(dim, use_bias=False, name="mix_w")
        self.mix_c = layers.Dense(dim, use_bias=False, name="mix_c")
        self.weigh_1 = layers.Dense(dim // 2, activation=keras.activations.gelu, name="weigh_1")
        self.weigh_2 = layers.Dense(3 * dim, name="weigh_2")
        self.out = layers.Dense(dim, name="out")

    def build(self, shape):
        side = shape[1] * (self.dim // self.segments)
        if side != self.dim:
            raise ValueError("height * dim / segments must be dim")
        for part in (self.mix_h, self.mix_w, self.mix_c, self.weigh_1, self.out):
            part.build((None, self.dim))
        self.weigh_2.build((None, self.dim // 2))
        self.built = True

    def call(self, x):
        _, height, width, dim = x.shape
        s, n = self.segments, dim // self.segments
        parts = ops.reshape(x, (-1, height, width, s, n))
        # (batch, segment, width, height * n)
        h = ops.reshape(ops.transpose(parts, (0, 3, 2, 1, 4)), (-1, s, width, height * n))
        h = ops.reshape(self.mix_h(h), (-1, s, width, height, n))
        h = ops.reshape(ops.transpose(h, (0, 3, 2, 1, 4)), (-1, height, width, dim))
        # (batch, height, segment, width * n)
        w = ops.reshape(ops.transpose(parts, (0, 1, 3, 2, 4)), (-1, height, s, width * n))
        w = ops.reshape(self.mix_w(w), (-1, height, s, width, n))
        w = ops.reshape(ops.transpose(w, (0, 1, 3, 2, 4)), (-1, height, width, dim))
        c = self.mix_c(x)

        a = ops.mean(h + w + c, axis=(1, 2))
        a = ops.reshape(self.weigh_2(self.weigh_1(a)), (-1, dim, 3))
        a = ops.softmax(a, axis=-1)[:, None, None]
        return self.out(h * a[..., 0] + w * a[..., 1] + c * a[..., 2])


def block(x, dim, segments, name):
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    x = layers.Add()([x, PermuteMLP(dim, segments, name=f"{name}_permute")(y)])
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    y = layers.Dense(2 * dim, activation="gelu", name=f"{name}_fc1")(y)
    y = layers.Dense(dim, name=f"{name}_fc2")(y)
    return layers.Add()([x, y])


def build():
    image = keras.Input((24, 24, 3), name="image")
    x = layers.Conv2D(WIDTHS[0], 4, strides=4, name="stem")(image)  # 6 x 6
    count = 0
    for stage, (depth, dim) in enumerate(zip(DEPTHS, WIDTHS)):
        if stage:
            x = layers.Conv2D(dim, 2, strides=2, name=f"down{stage}")(x)  # 3 x 3
        for _ in range(depth):
            x = block(x, dim, x.shape[1], f"block{count}")
            count += 1
    x = layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(MINTS, name="mint")(x), name="permutator")


def depth_of(path):
    """0 is the stem, 1 + i block i together with what leads into it, then the head."""
    first = path.split("/")[0]
    if first == "stem":
        return 0
    if first.startswith("down"):
        return 1 + sum(DEPTHS[: int(first[4:])])
    if first.startswith("block"):
        return 1 + int(first[5:].split("_")[0])
    return 1 + sum(DEPTHS)


class DepthwiseRates(keras.optimizers.AdamW):
    """AdamW whose rate is multiplied by decay ** (distance to the head)."""

    def __init__(self, *args, rate_decay=0.6, **kwargs):
        super().__init__(*args, **kwargs)
        self.rate_decay = rate_decay

    def build(self, variables):
        super().build(variables)
        self.factors = [self.rate_decay ** (1 + sum(DEPTHS) - depth_of(v.path)) for v in variables]

    def factor(self, variable):
        return self.factors[self._get_variable_index(variable)]

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate * self.factor(variable))

    def _apply_weight_decay(self, variables):
        for variable in variables:
            if self._use_weight_decay(variable):
                lr = ops.cast(self.learning_rate, variable.dtype) * self.factor(variable)
                variable.assign(variable - variable * lr * self.weight_decay)


class WarmCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak, warm, total):
        self.peak, self.warm, self.total = peak, warm, total

    def __call__(self, step):
        step = ops.cast(step, keras.config.floatx())
        up = (step + 1.0) / self.warm
        down = 0.5 * (1.0 + ops.cos(math.pi * (step - self.warm) / (self.total - self.warm)))
        return self.peak * ops.where(step < self.warm, up, down)

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm, "total": self.total}


def optimizer():
    opt = DepthwiseRates(WarmCosine(4e-3, 8, STEPS), weight_decay=0.05, beta_2=0.98, epsilon=1e-7)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
