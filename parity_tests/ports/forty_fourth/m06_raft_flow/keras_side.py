"""Optical flow with recurrent all-pairs field transforms (RAFT) at a quarter of the resolution.

Outputs are the flows of all iterations (batch, iterations, height, width, 2); targets are u, v and whether they are known.
"""

import keras
from keras import layers, ops

SIDE, SCALE = 32, 4
GRID = SIDE // SCALE
FEATURES, HIDDEN, CONTEXT = 24, 16, 16
LEVELS, RADIUS, ITERATIONS = 2, 2, 3
GAMMA = 0.8


def encoder(filters, norm, name):
    def normalise(i):
        return layers.GroupNormalization(
            groups=-1 if norm == "instance" else 4, epsilon=1e-5, name=f"norm{i}"
        )

    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            layers.Conv2D(16, 5, strides=2, padding="same", name="conv0"),
            normalise(0),
            layers.ReLU(),
            layers.Conv2D(24, 3, strides=2, padding="same", name="conv1"),
            normalise(1),
            layers.ReLU(),
            layers.Conv2D(filters, 1, name="conv2"),
        ],
        name=name,
    )


def sample(planes, x, y):
    """Bilinear values of (n, h, w) at (n, k) points, zero outside."""
    _, h, w = planes.shape
    flat = ops.reshape(planes, (-1, h * w))
    x0, y0 = ops.floor(x), ops.floor(y)
    total = 0.0
    for dx in (0.0, 1.0):
        for dy in (0.0, 1.0):
            cx, cy = x0 + dx, y0 + dy
            inside = ops.cast((cx >= 0) & (cx <= w - 1) & (cy >= 0) & (cy <= h - 1), flat.dtype)
            index = ops.cast(ops.clip(cy, 0, h - 1) * w + ops.clip(cx, 0, w - 1), "int32")
            weight = (1.0 - ops.abs(x - cx)) * (1.0 - ops.abs(y - cy))
            total += ops.take_along_axis(flat, index, axis=1) * inside * weight
    return total


class Update(layers.Layer):
    """Motion features, a convolutional GRU, the heads of the flow and of the upsampling weights."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)

        def conv(filters, size, activation=None, name=None):
            return layers.Conv2D(filters, size, padding="same", activation=activation, name=name)

        self.corr = conv(32, 1, "relu", "corr")
        self.flow = conv(16, 3, "relu", "flow")
        self.motion = conv(24, 3, "relu", "motion")
        self.update = conv(HIDDEN, 3, "sigmoid", "update")
        self.reset = conv(HIDDEN, 3, "sigmoid", "reset")
        self.candidate = conv(HIDDEN, 3, "tanh", "candidate")
        self.delta0 = conv(24, 3, "relu", "delta0")
        self.delta1 = conv(2, 3, None, "delta1")
        self.mask0 = conv(24, 3, "relu", "mask0")
        self.mask1 = conv(9 * SCALE * SCALE, 1, None, "mask1")

    def call(self, hidden, context, corr, flow):
        motion = self.motion(ops.concatenate([self.corr(corr), self.flow(flow)], axis=-1))
        x = ops.concatenate([context, motion, flow], axis=-1)
        hx = ops.concatenate([hidden, x], axis=-1)
        z, r = self.update(hx), self.reset(hx)
        hidden = (1.0 - z) * hidden + z * self.candidate(ops.concatenate([r * hidden, x], axis=-1))
        return hidden, self.delta1(self.delta0(hidden)), 0.25 * self.mask1(self.mask0(hidden))


class RAFT(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fnet = encoder(FEATURES, "instance", "fnet")
        self.cnet = encoder(HIDDEN + CONTEXT, "group", "cnet")
        self.block = Update(name="block")

    @staticmethod
    def pyramid(one, two):
        one = ops.reshape(one, (-1, GRID * GRID, FEATURES))
        two = ops.reshape(two, (-1, GRID * GRID, FEATURES))
        volume = ops.einsum("bid,bjd->bij", one, two) * FEATURES**-0.5
        volume = ops.reshape(volume, (-1, GRID, GRID, 1))
        levels = [volume[..., 0]]
        for _ in range(LEVELS - 1):
            volume = ops.average_pool(volume, 2, data_format="channels_last")
            levels.append(volume[..., 0])
        return levels

    @staticmethod
    def lookup(levels, coords):
        span = ops.arange(-RADIUS, RADIUS + 1, dtype=coords.dtype)
        dy, dx = ops.meshgrid(span, span, indexing="ij")
        dy, dx = ops.reshape(dy, (1, -1)), ops.reshape(dx, (1, -1))
        centre = ops.reshape(coords, (-1, 2))
        found = [
            sample(level, centre[:, :1] / 2**i + dx, centre[:, 1:] / 2**i + dy)
            for i, level in enumerate(levels)
        ]
        return ops.reshape(ops.concatenate(found, axis=1), (-1, GRID, GRID, LEVELS * (2 * RADIUS + 1) ** 2))

    @staticmethod
    def upsample(flow, mask):
        """A convex combination of the 3 x 3 neighbours for every fine pixel."""
        mask = ops.softmax(ops.reshape(mask, (-1, GRID * GRID, 9, SCALE * SCALE)), axis=2)
        mask = ops.reshape(mask, (-1, GRID, GRID, 9, SCALE, SCALE))
        near = ops.image.extract_patches(
            SCALE * flow, 3, strides=1, padding="same", data_format="channels_last"
        )
        near = ops.reshape(near, (-1, GRID, GRID, 9, 2))
        fine = ops.einsum("bijkyx,bijkc->biyjxc", mask, near)
        return ops.reshape(fine, (-1, SIDE, SIDE, 2))

    def call(self, inputs):
        one, two = (inputs["frame1"], inputs["frame2"]) if isinstance(inputs, dict) else inputs
        one, two = 2.0 * one - 1.0, 2.0 * two - 1.0
        levels = self.pyramid(self.fnet(one), self.fnet(two))
        hidden, context = ops.split(self.cnet(one), [HIDDEN], axis=-1)
        hidden, context = ops.tanh(hidden), ops.relu(context)
        line = ops.arange(GRID, dtype=one.dtype)
        x, y = ops.meshgrid(line, line)
        start = ops.broadcast_to(ops.stack([x, y], axis=-1), (ops.shape(one)[0], GRID, GRID, 2))
        coords = start
        flows = []
        for _ in range(ITERATIONS):
            coords = ops.stop_gradient(coords)
            corr = self.lookup(levels, coords)
            hidden, delta, mask = self.block(hidden, context, corr, coords - start)
            coords = coords + delta
            flows.append(self.upsample(coords - start, mask))
        return ops.stack(flows, axis=1)


def build():
    model = RAFT(name="raft")
    blank = ops.zeros((1, SIDE, SIDE, 1))
    model({"frame1": blank, "frame2": blank})
    return model


def sequence_loss(targets, outputs):
    flow, known = targets[:, None, ..., :2], targets[..., 2]
    distance = ops.sum(ops.abs(outputs - flow), axis=-1)
    distance = (
        ops.sum(distance * known[:, None], axis=(2, 3))
        / ops.maximum(ops.sum(known, axis=(1, 2)), 1.0)[:, None]
    )
    loss = 0.0
    for i in range(ITERATIONS):
        loss += GAMMA ** (ITERATIONS - 1 - i) * ops.mean(distance[:, i])
    return loss
