"""Hyena model; every layer is channels last: (batch, steps, features)."""

import math

import torch
from torch import nn


def glorot_uniform(*shape):
    limit = math.sqrt(6.0 / (shape[0] + shape[-1]))
    return nn.Parameter(torch.empty(*shape).uniform_(-limit, limit))


class Layer(nn.Module):
    def __init__(self, name=None):
        super().__init__()
        self.layer_name = name

    def call(self, inputs):
        raise NotImplementedError

    def forward(self, *inputs):
        return self.call(*inputs)


class Dense(Layer):
    def __init__(self, input_dim, units, activation=None, use_bias=True, name=None):
        super().__init__(name)
        self.kernel = glorot_uniform(input_dim, units)
        self.bias = nn.Parameter(torch.zeros(units)) if use_bias else None
        self.activation = activation

    def call(self, inputs):
        outputs = torch.matmul(inputs, self.kernel)
        if self.bias is not None:
            outputs = outputs + self.bias
        return outputs if self.activation is None else self.activation(outputs)


class LayerNormalization(Layer):
    def __init__(self, units, epsilon=1e-5, name=None):
        super().__init__(name)
        self.beta = nn.Parameter(torch.zeros(units))
        self.gamma = nn.Parameter(torch.ones(units))
        self.epsilon = epsilon

    def call(self, inputs):
        variance, mean = torch.var_mean(inputs, dim=-1, correction=0, keepdim=True)
        return (inputs - mean) / torch.sqrt(variance + self.epsilon) * self.gamma + self.beta


class CausalDepthwiseConv1D(Layer):
    def __init__(self, units, kernel_size=3, name=None):
        super().__init__(name)
        self.kernel_size = kernel_size
        self.depthwise_kernel = nn.Parameter(torch.empty(kernel_size, units).uniform_(-0.57, 0.57))
        self.bias = nn.Parameter(torch.zeros(units))

    def call(self, inputs):
        padded = nn.functional.pad(inputs, (0, 0, self.kernel_size - 1, 0))
        windows = padded.unfold(1, self.kernel_size, 1)
        return torch.einsum("blcs,sc->blc", windows, self.depthwise_kernel) + self.bias


class ImplicitFilter(Layer):
    def __init__(self, steps, units, filters, bands=3, width=16, name=None):
        super().__init__(name)
        self.steps, self.units, self.filters = steps, units, filters
        self.frequency = nn.Parameter(torch.full((width,), 4.0))
        self.hidden = nn.ModuleList([Dense(2 * bands + 1, width), Dense(width, width)])
        self.projection = Dense(width, units * filters, use_bias=False)

        angle = 2 * math.pi * torch.arange(steps)[:, None] / steps * torch.linspace(1e-4, bands - 1, bands)
        position = torch.linspace(0, 1, steps)[:, None]
        self.register_buffer(
            "features", torch.cat([position, angle.cos(), -angle.sin()], -1), persistent=False
        )
        rates = torch.linspace(math.log(100.0) / 1.5, math.log(100.0) / 0.3, units)
        time = torch.arange(steps)[:, None] / steps
        self.register_buffer("window", torch.exp(-time * rates), persistent=False)

    def call(self):
        h = self.features
        for dense in self.hidden:
            h = torch.sin(self.frequency * dense(h))
        h = self.projection(h).reshape(self.steps, self.filters, self.units)
        return h * self.window[:, None]


class LongConvolution(Layer):
    def call(self, inputs, kernel):
        # inputs: (batch, steps, units), kernel: (steps, units)
        steps = inputs.shape[1]
        spectrum = torch.fft.rfft(inputs, n=2 * steps, dim=1) * torch.fft.rfft(kernel, n=2 * steps, dim=0)
        return torch.fft.irfft(spectrum, n=2 * steps, dim=1)[:, :steps]


class HyenaMixer(Layer):
    def __init__(self, steps, units, order=3, name=None):
        super().__init__(name)
        self.order = order
        self.skip = nn.Parameter(torch.randn(order - 1, units))
        self.filter = ImplicitFilter(steps, units, order - 1)
        self.projection = Dense(units, (order + 1) * units)
        self.short_conv = CausalDepthwiseConv1D((order + 1) * units)
        self.long_conv = LongConvolution()
        self.output_projection = Dense(units, units)

    def call(self, inputs):
        branches = torch.chunk(self.short_conv(self.projection(inputs)), self.order + 1, dim=-1)
        gates, value = branches[:-1], branches[-1]
        kernels = self.filter()
        for i in range(self.order - 1):
            gated = value * gates[self.order - 1 - i]
            value = self.long_conv(gated, kernels[:, i]) + self.skip[i] * value
        return self.output_projection(value * gates[0])


class Residual(Layer):
    def __init__(self, units, *layers, name=None):
        super().__init__(name)
        self.normalization = LayerNormalization(units)
        self.inner = nn.Sequential(*layers)

    def call(self, inputs):
        return inputs + self.inner(self.normalization(inputs))


class GlobalAveragePooling1D(Layer):
    def call(self, inputs):
        return torch.mean(inputs, dim=1)


def build(steps=48, channels=3, units=12, depth=2, targets=2):
    layers = [Dense(channels, units, name="embedding")]
    for i in range(depth):
        layers.append(Residual(units, HyenaMixer(steps, units), name=f"mixer_{i}"))
        layers.append(
            Residual(
                units,
                Dense(units, 2 * units, activation=nn.functional.gelu),
                Dense(2 * units, units),
                name=f"mlp_{i}",
            )
        )
    layers.append(LayerNormalization(units, name="final_norm"))
    layers.append(GlobalAveragePooling1D(name="pooling"))
    layers.append(Dense(units, targets, name="state"))
    return nn.Sequential(*layers)
