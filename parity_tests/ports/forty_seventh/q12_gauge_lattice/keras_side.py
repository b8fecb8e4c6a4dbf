"""Gauge-equivariant convolutions over a U(1) lattice with a charged scalar field.

`links` holds the angles of the two links that leave a site, `matter` the real and the imaginary
part of the field; the lattice is periodic. A field is kept as a pair of real tensors.
"""

import keras
from keras import layers, ops

SIZE, CHANNELS, DEPTH = 8, 10, 3


def product(a, b):
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def ahead(x, axis):
    """The value of the neighbour one site ahead."""
    return ops.roll(x, -1, axis=axis)


def behind(x, axis):
    return ops.roll(x, 1, axis=axis)


class Plaquettes(layers.Layer):
    def call(self, links):
        x, y = links[..., 0], links[..., 1]
        angle = x + ahead(y, 1) - ahead(x, 2) - y
        return ops.stack([ops.cos(angle), ops.sin(angle)], axis=-1)


class GaugeConv(layers.Layer):
    """Sums over the site itself and its four neighbours, each carried home along its link."""

    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        self.channels = channels

    def build(self, real_shape, *_):
        shape = (5, real_shape[-1], self.channels)
        init = keras.initializers.VarianceScaling(0.5, "fan_in", "normal")
        self.real = self.add_weight(name="real", shape=shape, initializer=init)
        self.imag = self.add_weight(name="imag", shape=shape, initializer=init)

    def call(self, real, imag, links):
        moved = [(real, imag)]
        for direction, axis in ((0, 1), (1, 2)):
            angle = links[..., direction : direction + 1]
            u = ops.cos(angle), ops.sin(angle)
            moved.append(product(u, (ahead(real, axis), ahead(imag, axis))))
            u = ops.cos(angle), -ops.sin(angle)
            back = product(u, (real, imag))
            moved.append((behind(back[0], axis), behind(back[1], axis)))
        re = ops.stack([m[0] for m in moved], axis=-2)
        im = ops.stack([m[1] for m in moved], axis=-2)
        mix = lambda a, w: ops.einsum("bxykc,kcd->bxyd", a, w)
        return mix(re, self.real) - mix(im, self.imag), mix(re, self.imag) + mix(im, self.real)


class ModulusNorm(layers.Layer):
    """Divides by the root mean square modulus of the channels of a site."""

    def build(self, real_shape, *_):
        self.gain = self.add_weight(name="gain", shape=(real_shape[-1],), initializer="ones")

    def call(self, real, imag):
        square = ops.mean(ops.square(real) + ops.square(imag), axis=-1, keepdims=True)
        factor = self.gain * ops.rsqrt(square + 1e-3)
        return real * factor, imag * factor


class ModulusGate(layers.Layer):
    """Scales by a gate that sees gauge-invariant quantities alone: moduli and the plaquette."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.gate = layers.Dense(CHANNELS, activation="sigmoid", name="gate")

    def call(self, real, imag, flux):
        seen = ops.concatenate([ops.square(real) + ops.square(imag), flux], axis=-1)
        g = self.gate(seen)
        return real * g, imag * g


def build():
    links = keras.Input((SIZE, SIZE, 2), name="links")
    matter = keras.Input((SIZE, SIZE, 2), name="matter")
    flux = Plaquettes(name="plaquettes")(links)
    real, imag = matter[..., :1], matter[..., 1:]
    for i in range(DEPTH):
        re, im = GaugeConv(CHANNELS, name=f"conv{i}")(real, imag, links)
        re, im = ModulusNorm(name=f"norm{i}")(re, im)
        re, im = ModulusGate(name=f"gate{i}")(re, im, flux)
        real, imag = (re, im) if i == 0 else (real + re, imag + im)
    density = ops.concatenate(
        [
            ops.square(real) + ops.square(imag),
            real * matter[..., :1] + imag * matter[..., 1:],
            flux,
        ],
        axis=-1,
    )
    x = layers.Dense(24, activation="softplus", name="site")(density)
    x = layers.GlobalAveragePooling2D()(x)
    y = layers.Dense(2, name="observables")(x)
    return keras.Model({"links": links, "matter": matter}, y)
