"""Augmentation in NumPy, whole batches at once; see parity.common.spec.augment for what each op means.

No sum runs over more than one sample and no product is of matrices, so a sample's bits do not depend on
the batch it is in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from parity.common.base import rng
from parity.common.base.errors import SpecError
from parity.common.data.samples import Array, Fetch, Ids, Rows
from parity.common.spec import augment as spec
from parity.common.spec.data import DataSpec
from parity.common.spec.layers.random import threshold

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Draws:
    """The random numbers of one op for some samples in an epoch. Each draw begins anew.

    training: or evaluation, where crops draw nothing and the epoch is 0.
    """

    seed: int
    index: int
    ids: Ids
    epoch: int
    training: bool = True

    def words(self, count: int, *attempt: int) -> NDArray[np.uint32]:
        """32-bit words: (samples, count)."""
        key = rng.derive_key(self.seed, "augment", self.index, *attempt)
        return rng.sample_words(key, self.epoch, self.ids, count)

    def uniform(self, count: int, *attempt: int) -> Floats:
        """Uniform in [0, 1) with 53 bits, of two words each: (samples, count)."""
        return rng.fractions(self.words(2 * count, *attempt))


def augmented(data: DataSpec, draws: Draws, mixable: Callable[[Array], Array], fetch: Fetch) -> Rows:
    """Rows of the sample ids after all ops, inputs that are numbers in float64.

    draws: of the first op. mixable: turns targets into what can be mixed. fetch: rows before all ops.
    """
    ops = data.augment
    mixup = next((i for i, op in enumerate(ops) if isinstance(op, spec.Mixup)), None)
    if mixup is None or not draws.training:
        return _through(ops, draws, *_wide(fetch(draws.ids)))
    op = ops[mixup]
    assert isinstance(op, spec.Mixup)
    share, partners = mixup_of(op, replace(draws, index=mixup), data.train_samples)
    both = np.concatenate([draws.ids, partners])
    inputs, targets = _through(ops[:mixup], replace(draws, ids=both), *_wide(fetch(both)))
    mixed = [_mix(share, x) for x in (inputs, mixable(targets))]
    return _through(ops[mixup + 1 :], replace(draws, index=mixup + 1), mixed[0], mixed[1])


def _wide(rows: Rows) -> Rows:
    inputs, targets = rows
    return (inputs.astype(np.float64, copy=False) if inputs.dtype.kind == "f" else inputs), targets


def _mix(share: Floats, values: Array) -> Array:
    first, second = values[: len(share)], values[len(share) :]
    mine = share.reshape(-1, *[1] * (values.ndim - 1))
    mixed: Array = mine * first + (1 - mine) * second
    return mixed


def _through(ops: tuple[spec.Op, ...], first: Draws, inputs: Array, targets: Array) -> Rows:
    for index, op in enumerate(ops, start=first.index):
        if first.training or isinstance(op, _EVALUATED):
            inputs, targets = _FUNCTIONS[type(op)](op, replace(first, index=index), inputs, targets)
    return inputs, targets


def _moved_together(inputs: Array, targets: Array) -> bool:
    """Whether targets have the height and width of the images."""
    return targets.ndim >= 3 and targets.shape[1:3] == inputs.shape[1:3]


# Geometry.


def _crop(op: spec.Crop, draws: Draws, inputs: Array, targets: Array) -> Rows:
    sides = inputs.shape[1:3]
    size = op.size or sides
    # By how much the padded image exceeds what is cut out, along each axis.
    rooms = np.array([side + 2 * op.padding - cut for side, cut in zip(sides, size, strict=True)])
    if rooms.min() < 0:
        raise SpecError(f"data.augment: crop of size {op.size} from images {sides} padded by {op.padding}")
    places = np.broadcast_to(rooms // 2, (len(inputs), 2))
    if draws.training:
        places = rng.below(draws.words(2), rooms + 1)
    if _moved_together(inputs, targets):
        fill = op.fill if targets.dtype.kind == "f" else op.fill_target
        targets = _cut(targets, places, size, op.padding, fill)
    return _cut(inputs, places, size, op.padding, op.fill), targets


def _cut(images: Array, places: Ids, size: tuple[int, ...], padding: int, fill: float) -> Array:
    if padding:
        sides = (images.shape[1] + 2 * padding, images.shape[2] + 2 * padding)
        padded = np.full((len(images), *sides, *images.shape[3:]), fill, images.dtype)
        padded[:, padding:-padding, padding:-padding] = images
        images = padded
    windows = sliding_window_view(images, size, (1, 2))
    windows = np.moveaxis(windows, (-2, -1), (3, 4))
    return np.ascontiguousarray(windows[np.arange(len(images)), places[:, 0], places[:, 1]])


def _resized_crop(op: spec.ResizedCrop, draws: Draws, inputs: Array, targets: Array) -> Rows:
    """Of evaluation samples the whole; of others parts, given by begin and length of rows and columns."""
    height, width = inputs.shape[1:3]
    top = left = np.zeros(len(inputs))
    cut_height, cut_width = np.full((2, len(inputs)), [[height], [width]], np.float64)
    if draws.training:
        uniform = draws.uniform(4)
        area = height * width * (op.scale[0] + (op.scale[1] - op.scale[0]) * uniform[:, 0])
        low, high = np.log(op.ratio)
        ratio = np.exp(low + (high - low) * uniform[:, 1])
        cut_height = np.minimum(np.sqrt(area / ratio), height)
        cut_width = np.minimum(np.sqrt(area * ratio), width)
        top, left = uniform[:, 2] * (height - cut_height), uniform[:, 3] * (width - cut_width)
    size = op.size or (height, width)
    together = _moved_together(inputs, targets)
    for axis, (begin, length) in ((1, (top, cut_height)), (2, (left, cut_width))):
        # Where the new pixels lie on the old grid, old pixel i being at i: (samples, side).
        side = size[axis - 1]
        centres = begin[:, None] + (np.arange(side) + 0.5) * (length / side)[:, None] - 0.5
        inputs = _scaled_along(inputs, axis, centres)
        if together and targets.dtype.kind == "f":
            targets = _scaled_along(targets, axis, centres)
        elif together:
            nearest = np.clip(np.floor(centres + 0.5), 0, targets.shape[axis] - 1).astype(np.int64)
            targets = _picked(targets, axis, nearest)
    return inputs, targets


def _scaled_along(images: Array, axis: int, centres: Floats) -> Array:
    last = images.shape[axis] - 1
    places = np.clip(centres, 0, last)
    low = np.floor(places).astype(np.int64)
    shape = [len(images), *[1] * (images.ndim - 1)]
    shape[axis] = centres.shape[1]
    part = (places - low).reshape(shape)
    scaled, above = _picked(images, axis, low), _picked(images, axis, np.minimum(low + 1, last))
    # In place: at this size, fresh memory costs more than the arithmetic.
    scaled *= 1 - part
    above *= part
    scaled += above
    return scaled


def _picked(images: Array, axis: int, places: Ids) -> Array:
    """Each sample's own rows (axis 1) or columns (axis 2)."""
    samples = np.arange(len(images))[:, None]
    if axis == 1:
        return images[samples, places]
    count, height, width, *rest = images.shape
    # As one list of pixels: NumPy takes from one axis three times as fast as along several.
    row_begins = np.arange(count * height).reshape(count, height, 1) * width
    pixels = images.reshape(count * height * width, *rest)
    picked: Array = pixels.take(row_begins + places[:, None, :], 0)
    return picked


def _flip(op: spec.Flip, draws: Draws, inputs: Array, targets: Array) -> Rows:
    chosen = draws.uniform(1)[:, 0] < op.probability
    axis = 2 if op.axis == "horizontal" else 1
    if _moved_together(inputs, targets):
        targets = _mirrored(targets, chosen, axis)
    return _mirrored(inputs, chosen, axis), targets


def _mirrored(images: Array, chosen: NDArray[np.bool_], axis: int) -> Array:
    result = images.copy()
    result[chosen] = np.flip(images[chosen], axis)
    return result


# Values.


def _normalise(op: spec.Normalise, draws: Draws, inputs: Array, targets: Array) -> Rows:
    del draws
    mean, std = np.array(op.mean), np.array(op.std)
    # The input's copy is known by being numbers of the same shape.
    copied = targets.dtype.kind == "f" and targets.ndim > 2 and targets.shape == inputs.shape
    return (inputs - mean) / std, (targets - mean) / std if copied else targets


def _cutout(op: spec.Cutout, draws: Draws, inputs: Array, targets: Array) -> Rows:
    uniform = draws.uniform(3)
    chosen = uniform[:, 2] < op.probability
    inside = []
    for axis, side in enumerate(inputs.shape[1:3]):
        begin = np.floor(uniform[:, axis] * side).astype(np.int64) - op.size // 2
        places = np.arange(side)
        inside.append((places >= begin[:, None]) & (places < begin[:, None] + op.size))
    hole = inside[0][:, :, None] & inside[1][:, None, :] & chosen[:, None, None]
    return np.where(hole[..., None], op.fill, inputs), targets


def _colour_jitter(op: spec.ColourJitter, draws: Draws, inputs: Array, targets: Array) -> Rows:
    uniform = draws.uniform(3)[:, :, None, None, None]
    for number, strength in enumerate((op.brightness, op.contrast, op.saturation)):
        if not strength:
            continue
        factor = 1 + strength * (2 * uniform[:, number] - 1)
        if number == 0:
            inputs = inputs * factor
        elif number == 1:
            mean = _grey(inputs).reshape(len(inputs), math.prod(inputs.shape[1:3])).mean(1)
            mean = mean[:, None, None, None]
            inputs = mean + (inputs - mean) * factor
        else:
            grey = _grey(inputs)
            inputs = grey + (inputs - grey) * factor
        if op.clip is not None:
            inputs = np.clip(inputs, *op.clip)
    return inputs, targets


def _grey(images: Array) -> Array:
    """(samples, height, width, 1)."""
    if images.shape[-1] == 3:
        weighted: Array = 0.299 * images[..., :1] + 0.587 * images[..., 1:2] + 0.114 * images[..., 2:]
        return weighted
    # Channel by channel: how NumPy sums along an axis may depend on the others.
    total = images[..., :1]
    for channel in range(1, images.shape[-1]):
        total = total + images[..., channel : channel + 1]
    mean: Array = total / images.shape[-1]
    return mean


def _noise(op: spec.Noise, draws: Draws, inputs: Array, targets: Array) -> Rows:
    count = math.prod(inputs.shape[1:])
    # Box and Muller: two normals of two uniforms, of 32 bits each and never 0.
    uniform = (draws.words(count + count % 2) + 0.5) * 2.0**-32
    radius = np.sqrt(-2 * np.log(uniform[:, 0::2]))
    angle = 2 * np.pi * uniform[:, 1::2]
    normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    normal = normal.reshape(len(inputs), count + count % 2)[:, :count]
    return inputs + op.std * normal.reshape(inputs.shape), targets


# Mixup.


def mixup_of(op: spec.Mixup, draws: Draws, training_samples: int) -> tuple[Floats, Ids]:
    """Each sample's own share, from Beta(alpha, alpha), and its partner among the other ids."""
    first, second = (_log_gamma_variate(op.alpha, draws, number) for number in (1, 2))
    # a / (a + b) of two gamma variates is Beta; by logarithms, since small alphas underflow.
    share = 1 / (1 + np.exp(np.clip(second - first, -700, 700)))
    others = training_samples - 1
    steps = 1 + np.floor(draws.uniform(1)[:, 0] * others).astype(np.int64)
    return share, (draws.ids + steps) % training_samples


def _log_gamma_variate(alpha: float, draws: Draws, number: int) -> Floats:
    """Logarithms of Gamma(alpha, 1) variates, one a sample.

    Marsaglia and Tsang, "A simple method for generating gamma variables", 2000: of alpha + 1, then times
    u^(1/alpha), so that any alpha will do. A sample that is rejected draws again under the next key.
    """
    d = alpha + 1 - 1 / 3
    c = 1 / np.sqrt(9 * d)
    result = np.zeros(len(draws.ids))
    pending = np.arange(len(draws.ids))
    attempt = 0
    while len(pending):
        u = replace(draws, ids=draws.ids[pending]).uniform(4, number, attempt)
        x = np.sqrt(-2 * np.log(1 - u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
        v = np.maximum(1 + c * x, 0) ** 3
        with np.errstate(divide="ignore", invalid="ignore"):
            log_v = np.log(v)
            accepted = (v > 0) & (np.log(1 - u[:, 2]) < x * x / 2 + d - d * v + d * log_v)
            value = np.log(d) + log_v + np.log(1 - u[:, 3]) / alpha
        result[pending[accepted]] = value[accepted]
        pending = pending[~accepted]
        attempt += 1
    return result


# Tokens.


def _mask_tokens(op: spec.MaskTokens, draws: Draws, inputs: Array, targets: Array) -> Rows:
    del targets
    tokens = inputs.shape[1]
    words = draws.words(3 * tokens).reshape(len(inputs), 3, tokens)
    chosen = (words[:, 0] < threshold(op.probability)) & ~np.isin(inputs, op.spared)
    masked = chosen & (words[:, 1] < threshold(op.masked))
    replaced = chosen & ~masked & (words[:, 1] < threshold(op.masked + op.replaced))
    other = rng.below(words[:, 2], op.vocabulary)
    hidden = np.where(masked, op.mask_id, np.where(replaced, other, inputs))
    return hidden, np.where(chosen, inputs, op.ignore)


_Function = Callable[[Any, Draws, Array, Array], Rows]
_FUNCTIONS: dict[type[spec.Op], _Function] = {
    spec.Crop: _crop,
    spec.ResizedCrop: _resized_crop,
    spec.Flip: _flip,
    spec.Normalise: _normalise,
    spec.Cutout: _cutout,
    spec.ColourJitter: _colour_jitter,
    spec.Noise: _noise,
    spec.MaskTokens: _mask_tokens,
}
# What evaluation samples go through, too.
_EVALUATED = (spec.Crop, spec.ResizedCrop, spec.Normalise, spec.MaskTokens)
