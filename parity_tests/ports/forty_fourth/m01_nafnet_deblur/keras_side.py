"""A small NAFNet for deblurring: gated blocks without activations, a U of two levels, a residual to the input."""

import math

import keras
from keras import layers, ops

WIDTH = 8
FFT_WEIGHT = 0.05
DB = 10.0 / math.log(10.0)


@keras.saving.register_keras_serializable("nafnet")
class PixelShuffle(layers.Layer):
    def __init__(self, factor=2, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        r = self.factor
        _, h, w, c = x.shape
        x = ops.reshape(x, (-1, h, w, c // (r * r), r, r))
        x = ops.transpose(x, (0, 1, 4, 2, 5, 3))
        return ops.reshape(x, (-1, h * r, w * r, c // (r * r)))


@keras.saving.register_keras_serializable("nafnet")
class NAFBlock(layers.Layer):
    def __init__(self, channels, dilation=1, **kwargs):
        super().__init__(**kwargs)
        c = channels
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.expand = layers.Conv2D(2 * c, 1)
        self.depthwise = layers.DepthwiseConv2D(3, padding="same", dilation_rate=dilation)
        self.channel = layers.Dense(c)
        self.project = layers.Conv2D(c, 1)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)
        self.ffn_in = layers.Conv2D(2 * c, 1)
        self.ffn_out = layers.Conv2D(c, 1)
        self.channels = c

    def build(self, input_shape):
        self.beta = self.add_weight(
            name="beta", shape=(self.channels,), initializer=keras.initializers.Constant(0.1)
        )
        self.gamma = self.add_weight(
            name="gamma", shape=(self.channels,), initializer=keras.initializers.Constant(0.1)
        )
        wide = (*input_shape[:-1], 2 * self.channels)
        self.norm1.build(input_shape)
        self.expand.build(input_shape)
        self.depthwise.build(wide)
        self.channel.build((input_shape[0], self.channels))
        self.project.build(input_shape)
        self.norm2.build(input_shape)
        self.ffn_in.build(input_shape)
        self.ffn_out.build(input_shape)
        self.built = True

    @staticmethod
    def gate(x):
        a, b = ops.split(x, 2, axis=-1)
        return a * b

    def call(self, x):
        y = self.gate(self.depthwise(self.expand(self.norm1(x))))
        y = y * self.channel(ops.mean(y, axis=(1, 2)))[:, None, None, :]
        x = x + self.beta * self.project(y)
        y = self.ffn_out(self.gate(self.ffn_in(self.norm2(x))))
        return x + self.gamma * y


def build():
    blurred = keras.Input((20, 20, 3), name="blurred")
    x = layers.Conv2D(WIDTH, 3, padding="same", name="intro")(blurred)
    skips = []
    width = WIDTH
    for level in range(2):
        x = NAFBlock(width, name=f"encoder{level}")(x)
        skips.append(x)
        width *= 2
        x = layers.Conv2D(width, 2, strides=2, name=f"down{level}")(x)
    x = NAFBlock(width, dilation=2, name="middle0")(x)
    x = NAFBlock(width, name="middle1")(x)
    for level in reversed(range(2)):
        x = layers.Conv2D(2 * width, 1, use_bias=False, name=f"up{level}")(x)
        x = PixelShuffle(2, name=f"shuffle{level}")(x)
        width //= 2
        x = layers.Add(name=f"skip{level}")([x, skips[level]])
        x = NAFBlock(width, name=f"decoder{level}")(x)
    x = layers.Conv2D(3, 3, padding="same", name="ending")(x)
    restored = layers.Add(name="restored")([x, blurred])
    return keras.Model(blurred, restored, name="nafnet")


def restoration_loss(targets, outputs):
    """The PSNR loss of each picture, and an L1 distance of the spectra."""
    diff = outputs - targets
    mse = ops.mean(ops.square(diff), axis=(1, 2, 3))
    psnr = DB * ops.log(mse + 1e-8)
    planes = ops.transpose(diff, (0, 3, 1, 2))
    real, imag = ops.fft2((planes, ops.zeros_like(planes)))
    spectrum = ops.mean(ops.abs(real) + ops.abs(imag), axis=(1, 2, 3)) / 2.0
    return ops.mean(psnr + FFT_WEIGHT * spectrum)


class RAdam(keras.optimizers.Optimizer):
    """Rectified Adam with decoupled weight decay."""

    def __init__(
        self,
        learning_rate=1e-3,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-8,
        weight_decay=None,
        name="radam",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay, name=name, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._m, self._v = self.add_optimizer_variables(variables, ["m", "v"])

    def update_step(self, gradient, variable, learning_rate):
        dtype = variable.dtype
        lr = ops.cast(learning_rate, dtype)
        g = ops.cast(gradient, dtype)
        t = ops.cast(self.iterations + 1, dtype)
        m = self._m[self._get_variable_index(variable)]
        v = self._v[self._get_variable_index(variable)]
        self.assign(m, self.beta_1 * m + (1.0 - self.beta_1) * g)
        self.assign(v, self.beta_2 * v + (1.0 - self.beta_2) * ops.square(g))
        power1 = ops.power(ops.convert_to_tensor(self.beta_1, dtype), t)
        power2 = ops.power(ops.convert_to_tensor(self.beta_2, dtype), t)
        m_hat = m / (1.0 - power1)
        rho_inf = 2.0 / (1.0 - self.beta_2) - 1.0
        rho = rho_inf - 2.0 * t * power2 / (1.0 - power2)
        known = rho > 5.0
        safe = ops.where(known, rho, ops.full_like(rho, rho_inf))
        rectified = ops.sqrt(
            (safe - 4.0) * (safe - 2.0) * rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0) * safe)
        )
        adaptive = ops.sqrt(1.0 - power2) / (ops.sqrt(v) + self.epsilon)
        scale = ops.where(known, rectified * adaptive, ops.ones_like(adaptive))
        self.assign_sub(variable, lr * m_hat * scale)

    def get_config(self):
        config = super().get_config()
        config.update(beta_1=self.beta_1, beta_2=self.beta_2, epsilon=self.epsilon)
        return config


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear from start to peak, then half a cosine down to floor * peak."""

    def __init__(self, start, peak, warmup, decay, floor):
        super().__init__()
        self.start, self.peak, self.warmup, self.decay, self.floor = start, peak, warmup, decay, floor

    def __call__(self, step):
        step = ops.cast(step, keras.config.floatx())
        rising = self.start + (self.peak - self.start) * step / self.warmup
        progress = ops.clip((step - self.warmup) / self.decay, 0.0, 1.0)
        falling = self.peak * (self.floor + (1.0 - self.floor) * 0.5 * (1.0 + ops.cos(math.pi * progress)))
        return ops.where(step < self.warmup, rising, falling)

    def get_config(self):
        return {key: getattr(self, key) for key in ("start", "peak", "warmup", "decay", "floor")}


def optimizer():
    rate = WarmupCosine(1e-4, 2e-3, warmup=8, decay=60, floor=0.01)
    opt = RAdam(rate, beta_1=0.9, beta_2=0.99, weight_decay=0.02)
    opt.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
    return opt
