"""Augmentation: every op against scalar code of one sample, and independent of batches, order and workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base import rng
from parity.common.base.errors import SpecError
from parity.common.data import sources
from parity.common.data.augment import Draws, mixup_of
from parity.common.data.samples import Samples
from parity.common.spec import TrainSpec
from parity.common.spec import augment as spec
from parity.common.spec.data import DataSpec
from parity_tests.helpers.records import one_line
from parity_tests.helpers.work import lines_run

FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SEED = 5
IMAGES = {"kind": "synthetic", "shape": [7, 6, 3], "classes": 4, "low": 0.0}
MASKS = {**IMAGES, "target": "masks"}
COPIES = {**IMAGES, "target": "input"}
TEXT = {"kind": "synthetic", "shape": [40], "vocabulary": 50, "target": "next", "pad_id": 0, "shortest": 9}
OPS: dict[str, dict[str, Any]] = {
    "crop": {"kind": "crop", "padding": 2, "fill": 0.25, "fill_target": 9},
    "small crop": {"kind": "crop", "padding": 1, "size": [4, 5]},
    "resized crop": {"kind": "resized_crop"},
    "other size": {"kind": "resized_crop", "size": [5, 9], "scale": [0.3, 0.9], "ratio": [0.5, 2.0]},
    "flip": {"kind": "flip"},
    "vertical flip": {"kind": "flip", "axis": "vertical", "probability": 0.3},
    "normalise": {"kind": "normalise", "mean": [0.1, 0.2, 0.3], "std": [0.5, 2.0, 0.25]},
    "one normaliser": {"kind": "normalise", "mean": [0.5], "std": [0.3]},
    "cutout": {"kind": "cutout", "size": 3, "fill": 0.5, "probability": 0.7},
    "even cutout": {"kind": "cutout", "size": 4},
    "jitter": {"kind": "colour_jitter", "brightness": 0.4, "contrast": 0.3, "saturation": 0.5},
    "unclipped jitter": {"kind": "colour_jitter", "brightness": 0.9, "contrast": 0.9, "clip": None},
    "noise": {"kind": "noise", "std": 0.2},
}


def data(source: dict[str, Any], *ops: dict[str, Any], **more: Any) -> DataSpec:
    fields = {"source": source, "augment": list(ops), "train_samples": 90, "eval_samples": 20, **more}
    return DataSpec.parse(fields)


def plain(source: dict[str, Any], ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows without augmentation."""
    return sources.load(data(source), "float64", SEED)[0].rows(ids)


# The reference: one sample, scalar code, the words of the generator taken one by one.


class Stream:
    """A sample's own words of one op, by their places."""

    def __init__(self, index: int, epoch: int, sample: int) -> None:
        self.index, self.epoch, self.sample = index, epoch, sample

    def word(self, place: int, *attempt: int) -> int:
        key = rng.derive_key(SEED, "augment", self.index, *attempt)
        counter = [np.array([x], np.uint64) for x in (place // 4, self.epoch, self.sample, 0)]
        return int(rng.philox_block(key, counter)[0, place % 4])

    def uniform(self, place: int, *attempt: int) -> float:
        high, low = (self.word(2 * place + i, *attempt) for i in (0, 1))
        return ((high << 32 | low) >> 11) / 2**53


def get(image: np.ndarray, row: int, column: int, fill: Any) -> Any:
    inside = 0 <= row < image.shape[0] and 0 <= column < image.shape[1]
    return image[row, column] if inside else fill


def crop(op: spec.Crop, s: Stream, image: np.ndarray, *, fill: Any) -> np.ndarray:
    height, width = op.size or image.shape[:2]
    rooms = [image.shape[0] + 2 * op.padding - height, image.shape[1] + 2 * op.padding - width]
    top, left = (s.word(i) * (room + 1) // 2**32 - op.padding for i, room in enumerate(rooms))
    result = np.zeros((height, width, *image.shape[2:]), image.dtype)
    for row in range(height):
        for column in range(width):
            result[row, column] = get(image, top + row, left + column, fill)
    return result


def part(op: spec.ResizedCrop, s: Stream, height: int, width: int) -> tuple[float, float, float, float]:
    area = height * width * (op.scale[0] + (op.scale[1] - op.scale[0]) * s.uniform(0))
    low, high = math.log(op.ratio[0]), math.log(op.ratio[1])
    ratio = math.exp(low + (high - low) * s.uniform(1))
    cut_height, cut_width = min(math.sqrt(area / ratio), height), min(math.sqrt(area * ratio), width)
    return s.uniform(2) * (height - cut_height), s.uniform(3) * (width - cut_width), cut_height, cut_width


def resized(op: spec.ResizedCrop, s: Stream, image: np.ndarray) -> np.ndarray:
    top, left, cut_height, cut_width = part(op, s, *image.shape[:2])
    height, width = op.size or image.shape[:2]
    result = np.zeros((height, width, *image.shape[2:]), image.dtype)
    for i in range(height):
        for j in range(width):
            y = top + (i + 0.5) * cut_height / height - 0.5
            x = left + (j + 0.5) * cut_width / width - 0.5
            if image.dtype.kind == "i":
                y, x = (
                    min(max(math.floor(p + 0.5), 0), n - 1)
                    for p, n in zip((y, x), image.shape[:2], strict=True)
                )
                result[i, j] = image[y, x]
                continue
            y, x = (min(max(p, 0.0), n - 1.0) for p, n in zip((y, x), image.shape[:2], strict=True))
            a, b = math.floor(y), math.floor(x)
            below, right = min(a + 1, image.shape[0] - 1), min(b + 1, image.shape[1] - 1)
            first = (1 - (y - a)) * image[a, b] + (y - a) * image[below, b]
            second = (1 - (y - a)) * image[a, right] + (y - a) * image[below, right]
            result[i, j] = (1 - (x - b)) * first + (x - b) * second
    return result


def flip(op: spec.Flip, s: Stream, image: np.ndarray) -> np.ndarray:
    if s.uniform(0) >= op.probability:
        return image
    rows = list(image)
    return np.array(rows[::-1] if op.axis == "vertical" else [row[::-1] for row in rows])


def normalise(op: spec.Normalise, image: np.ndarray) -> np.ndarray:
    channels = [
        (image[..., c] - op.mean[c % len(op.mean)]) / op.std[c % len(op.std)] for c in range(image.shape[-1])
    ]
    return np.stack(channels, -1)


def cutout(op: spec.Cutout, s: Stream, image: np.ndarray) -> np.ndarray:
    result = image.copy()
    if s.uniform(2) >= op.probability:
        return result
    top, left = (math.floor(s.uniform(i) * image.shape[i]) - op.size // 2 for i in (0, 1))
    for row in range(max(top, 0), min(top + op.size, image.shape[0])):
        for column in range(max(left, 0), min(left + op.size, image.shape[1])):
            result[row, column] = op.fill
    return result


def jitter(op: spec.ColourJitter, s: Stream, image: np.ndarray) -> np.ndarray:
    def clipped(values: np.ndarray) -> np.ndarray:
        return values if op.clip is None else np.clip(values, *op.clip)

    def grey() -> np.ndarray:
        return (image @ np.array([0.299, 0.587, 0.114]))[..., None]

    brightness, contrast, saturation = (
        1 + strength * (2 * s.uniform(i) - 1)
        for i, strength in enumerate((op.brightness, op.contrast, op.saturation))
    )
    image = clipped(image * brightness)
    image = clipped(grey().mean() + (image - grey().mean()) * contrast)
    return clipped(grey() + (image - grey()) * saturation)


def noise(op: spec.Noise, s: Stream, image: np.ndarray) -> np.ndarray:
    flat = image.ravel().copy()
    for i in range(flat.size):
        u, v = ((s.word(i - i % 2 + k) + 0.5) / 2**32 for k in (0, 1))
        turn = math.sin if i % 2 else math.cos
        flat[i] += op.std * math.sqrt(-2 * math.log(u)) * turn(2 * math.pi * v)
    return flat.reshape(image.shape)


def expected(op: Any, s: Stream, image: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One op on one sample."""
    moves = target.ndim >= 2
    if isinstance(op, spec.Crop):
        target_fill = op.fill if target.dtype.kind == "f" else op.fill_target
        return crop(op, s, image, fill=op.fill), crop(op, s, target, fill=target_fill) if moves else target
    if isinstance(op, spec.ResizedCrop):
        return resized(op, s, image), resized(op, s, target) if moves else target
    if isinstance(op, spec.Flip):
        return flip(op, s, image), flip(op, s, target) if moves else target
    if isinstance(op, spec.Normalise):
        return normalise(op, image), normalise(op, target) if target.ndim == 3 else target
    return {spec.Cutout: cutout, spec.ColourJitter: jitter, spec.Noise: noise}[type(op)](op, s, image), target


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.shape == theirs.shape and bool(np.abs(ours - theirs).max(initial=0) <= 1e-12)


@pytest.mark.parametrize("source", [IMAGES, MASKS, COPIES], ids=["classes", "masks", "copies"])
@pytest.mark.parametrize("name", OPS)
def test_an_op_is_what_scalar_code_makes_of_each_sample(name: str, source: dict[str, Any]) -> None:
    settings_of = data(source, {"kind": "flip", "probability": 0}, OPS[name])
    ids, epoch = np.array([3, 88, 0, 41, 7, 19, 55]), 2
    inputs, targets = sources.load(settings_of, "float64", SEED)[0].rows(ids, epoch)
    before, before_targets = plain(source, ids)
    changed = 0
    for row, sample in enumerate(ids.tolist()):
        op = settings_of.augment[1]
        image, target = expected(op, Stream(1, epoch, sample), before[row], before_targets[row])
        assert close(inputs[row], image) and close(targets[row], target)
        wrong, _ = expected(op, Stream(1, epoch, sample + 1), before[row], before_targets[row])
        changed += not close(inputs[row], wrong)
    # The negative control: another sample's numbers show, but where there are none or they agree.
    assert changed == 0 if "normalise" in name else changed >= 2


def test_ops_follow_each_other_each_with_its_own_numbers() -> None:
    ops = [OPS[name] for name in ("crop", "flip", "cutout", "flip")]
    ids = np.arange(60)
    inputs, _ = sources.load(data(IMAGES, *ops), "float64", SEED)[0].rows(ids, 1)
    before, targets = plain(IMAGES, ids)
    parsed = data(IMAGES, *ops).augment
    for row in range(60):
        image = before[row]
        for index, op in enumerate(parsed):
            image, _ = expected(op, Stream(index, 1, row), image, targets[row])
        assert np.array_equal(inputs[row], image)


ALL = [*(OPS[name] for name in ("crop", "resized crop", "flip", "jitter", "normalise", "cutout", "noise"))]


def classifier(*ops: dict[str, Any], precision: str = "float64", **loss: Any) -> TrainSpec:
    return TrainSpec.parse(
        {
            "name": "images",
            "model": {
                "input_shape": [7, 6, 3],
                "layers": [{"kind": "flatten"}, {"kind": "dense", "units": 4}],
            },
            "data": data(IMAGES, *ops).to_dict(),
            "loss": {"kind": "softmax_cross_entropy", "targets": "distributions", **loss},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            "global_batch_size": 8,
            "steps": 4,
            "seed": SEED,
            "precision": precision,
        }
    )


@pytest.fixture(scope="module")
def everything() -> Samples:
    return sources.load_for(classifier(*ALL, {"kind": "mixup"}))[0]


@given(ids=st.lists(st.integers(0, 89), min_size=0, max_size=12, unique=True), epoch=st.integers(0, 2**31))
@FEW
def test_a_sample_is_the_same_bits_in_any_batch(everything: Samples, ids: list[int], epoch: int) -> None:
    inputs, targets = everything.rows(np.array(ids, np.int64), epoch)
    assert inputs.shape == (len(ids), 7, 6, 3) and targets.shape == (len(ids), 4)
    for row, sample in enumerate(ids):
        one, target = everything.rows(np.array([sample]), epoch)
        assert np.array_equal(inputs[row], one[0]) and np.array_equal(targets[row], target[0])


def test_epochs_and_samples_and_seeds_differ(everything: Samples) -> None:
    ids = np.arange(30)
    again, other_epoch = everything.rows(ids, 0)[0], everything.rows(ids, 1)[0]
    assert np.array_equal(again, everything.rows(ids, 0)[0])
    assert not any(np.array_equal(a, b) for a, b in zip(again, other_epoch, strict=True))
    base = classifier(*ALL, {"kind": "mixup"})
    other_seed = sources.load_for(base.model_copy(update={"seed": 6}))[0].rows(ids, 0)[0]
    assert not any(np.array_equal(a, b) for a, b in zip(again, other_seed, strict=True))


def test_numbers_are_rounded_once() -> None:
    ids = np.arange(20)
    ops = [OPS["jitter"], OPS["normalise"], {"kind": "mixup"}]
    exact, targets = sources.load_for(classifier(*ops))[0].rows(ids, 3)
    single, single_targets = sources.load_for(classifier(*ops, precision="float32"))[0].rows(ids, 3)
    assert single.dtype == single_targets.dtype == np.float32
    assert np.array_equal(single, exact.astype(np.float32))
    assert np.array_equal(single_targets, targets.astype(np.float32))


def test_evaluation_is_normalised_and_not_augmented() -> None:
    ops = [*ALL[:4], {"kind": "mixup"}, *ALL[4:]]
    _, evaluated = sources.load_for(classifier(*ops))
    ids = np.arange(90, 110)
    inputs, targets = evaluated.rows(ids)
    before, labels = sources.load(data(IMAGES), "float64", SEED)[1].rows(ids)
    op = data(IMAGES, OPS["normalise"]).augment[0]
    assert all(close(x, normalise(op, y)) for x, y in zip(inputs, before, strict=True))
    assert np.array_equal(targets, np.eye(4)[labels])


def test_evaluation_gets_the_centre_or_the_whole() -> None:
    ids = np.arange(90, 110)
    before, _ = sources.load(data(IMAGES), "float64", SEED)[1].rows(ids)
    crop_op = {"kind": "crop", "padding": 0, "size": [4, 3]}
    cut, _ = sources.load(data(IMAGES, crop_op), "float64", SEED)[1].rows(ids)
    assert np.array_equal(cut, before[:, 1:5, 1:4])
    whole, _ = sources.load(data(IMAGES, OPS["resized crop"]), "float64", SEED)[1].rows(ids)
    assert np.array_equal(whole, before)
    halves, _ = sources.load(data(IMAGES, {"kind": "resized_crop", "size": [7, 3]}), "float64")[1].rows(ids)
    assert close(halves, (before[:, :, 0::2] + before[:, :, 1::2]) / 2)


# Distributions: exact counts under the key, within what a fair draw would give.


def drawn(op: dict[str, Any], count: int) -> tuple[spec.Op, Draws]:
    return data(IMAGES, op).augment[0], Draws(SEED, 0, np.arange(count), 0)


def test_flips_happen_as_often_as_asked() -> None:
    source = {**IMAGES, "shape": [2, 2, 1], "noise": 1.0}
    ids = np.arange(4000)
    before, _ = plain(source, ids)
    counts = {}
    for probability in (0.0, 0.3, 0.5, 1.0):
        settings_of = data(source, {"kind": "flip", "probability": probability}, train_samples=4000)
        after, _ = sources.load(settings_of, "float64", SEED)[0].rows(ids)
        counts[probability] = int((after != before).any((1, 2, 3)).sum())
    assert counts == {0.0: 0, 0.3: 1197, 0.5: 2013, 1.0: 4000}


def test_crops_fall_on_every_place_alike() -> None:
    source = {"kind": "synthetic", "shape": [3, 3, 1], "noise": 1.0}
    ids = np.arange(5000)
    settings_of = data(source, {"kind": "crop", "padding": 1, "fill": 9.0}, train_samples=5000)
    after, _ = sources.load(settings_of, "float64", SEED)[0].rows(ids)
    filled = after[..., 0] == 9.0
    # -1, 0 or 1 along each axis: told by which border is filled.
    top, left = (
        (filled[:, 0].all(-1), filled[:, -1].all(-1)),
        (filled[..., 0].all(-1), filled[..., -1].all(-1)),
    )
    for first, last in (top, left):
        counts = np.array([first.sum(), last.sum(), (~first & ~last).sum()])
        assert counts.sum() == 5000 and np.abs(counts / 5000 - 1 / 3).max() < 0.02


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 4.0])
def test_mixing_shares_have_the_moments_of_beta(alpha: float) -> None:
    op, draws = drawn({"kind": "mixup", "alpha": alpha}, 20_000)
    assert isinstance(op, spec.Mixup)
    share, partners = mixup_of(op, draws, 20_000)
    assert np.isfinite(share).all() and share.min() >= 0 and share.max() <= 1
    assert abs(share.mean() - 0.5) < 0.012
    assert abs(share.var() / (0.25 / (2 * alpha + 1)) - 1) < 0.03
    assert (partners != draws.ids).all() and partners.min() >= 0 and partners.max() < 20_000
    assert np.bincount(partners, minlength=20_000).max() < 12


def test_mixing_shares_are_what_scalar_code_draws() -> None:
    op, draws = drawn({"kind": "mixup", "alpha": 0.4}, 200)
    assert isinstance(op, spec.Mixup)
    share, partners = mixup_of(op, draws, 500)
    rejected = 0
    for sample in range(200):
        stream = Stream(0, 0, sample)
        logarithms = []
        for number in (1, 2):
            d = op.alpha + 2 / 3
            c = 1 / math.sqrt(9 * d)
            attempt = 0
            while True:
                u = [stream.uniform(i, number, attempt) for i in range(4)]
                x = math.sqrt(-2 * math.log(1 - u[0])) * math.cos(2 * math.pi * u[1])
                v = (1 + c * x) ** 3
                if v > 0 and math.log(1 - u[2]) < x * x / 2 + d - d * v + d * math.log(v):
                    break
                attempt += 1
                rejected += 1
            logarithms.append(math.log(d * v) + math.log(1 - u[3]) / op.alpha)
        assert share[sample] == pytest.approx(1 / (1 + math.exp(logarithms[1] - logarithms[0])), rel=1e-12)
        assert partners[sample] == (sample + 1 + math.floor(stream.uniform(0) * 499)) % 500
    assert rejected > 0


def test_mixup_mixes_augmented_samples_and_their_classes() -> None:
    base = classifier(OPS["flip"], {"kind": "mixup", "alpha": 0.5}, OPS["normalise"])
    ids = np.arange(40)
    inputs, targets = sources.load_for(base)[0].rows(ids, 4)
    op = base.data.augment[1]
    assert isinstance(op, spec.Mixup)
    share, partners = mixup_of(op, Draws(SEED, 1, ids, 4), 90)
    before = sources.load_for(classifier(OPS["flip"]))[0]
    (mine, my_class), (theirs, their_class) = before.rows(ids, 4), before.rows(partners, 4)
    weights = share[:, None, None, None]
    mixed = weights * mine + (1 - weights) * theirs
    last = base.data.augment[2]
    assert isinstance(last, spec.Normalise)
    assert close(inputs, normalise(last, mixed))
    assert close(targets, share[:, None] * my_class + (1 - share[:, None]) * their_class)
    assert close(targets.sum(-1), np.ones(40)) and (targets.max(-1) < 0.999).any()


MASK = {"kind": "mask_tokens", "vocabulary": 50, "mask_id": 1, "spared": [0]}


def test_tokens_are_masked_as_scalar_code_does() -> None:
    settings_of = data(TEXT, {**MASK, "probability": 0.5, "masked": 0.6, "replaced": 0.3})
    ids, epoch = np.arange(30), 3
    inputs, targets = sources.load(settings_of, "float64", SEED)[0].rows(ids, epoch)
    before, _ = plain(TEXT, ids)
    for sample in range(30):
        stream = Stream(0, epoch, sample)
        for place, token in enumerate(before[sample].tolist()):
            chosen = stream.word(place) < 0.5 * 2**32 and token != 0
            action = stream.word(40 + place)
            other = stream.word(80 + place) * 50 >> 32
            shown = 1 if action < 0.6 * 2**32 else other if action < 0.9 * 2**32 else token
            assert inputs[sample, place] == (shown if chosen else token)
            assert targets[sample, place] == (token if chosen else -100)


def test_tokens_are_masked_in_berts_shares() -> None:
    settings_of = data(
        {**TEXT, "pad_id": None, "shortest": 1, "vocabulary": 1000},
        {**MASK, "vocabulary": 1000},
        train_samples=2000,
    )
    ids = np.arange(2000)
    inputs, targets = sources.load(settings_of, "float64", SEED)[0].rows(ids)
    chosen = targets != -100
    masked = chosen & (inputs == 1) & (targets != 1)
    kept = chosen & (inputs == targets)
    assert chosen.mean() == pytest.approx(0.15, abs=0.004)
    assert masked.sum() / chosen.sum() == pytest.approx(0.8, abs=0.012)
    assert kept.sum() / chosen.sum() == pytest.approx(0.1, abs=0.012)
    others, _ = sources.load(settings_of, "float64", SEED)[0].rows(ids, 1)
    assert (others != inputs).any(-1).all()


def test_evaluation_tokens_are_masked_once_for_all() -> None:
    _, evaluated = sources.load(data(TEXT, MASK), "float64", SEED)
    ids = np.arange(90, 110)
    first, targets = evaluated.rows(ids)
    assert (targets != -100).any() and (targets == -100).any()
    assert all(np.array_equal(first, evaluated.rows(ids, epoch)[0]) for epoch in (1, 5))


# What is refused.


def reader(ignore: int | None) -> TrainSpec:
    layers = [{"kind": "embedding", "vocabulary": 50, "features": 2}, {"kind": "dense", "units": 50}]
    fields = classifier().to_dict() | {
        "model": {"input_shape": [40], "inputs": "tokens", "layers": layers},
        "data": data(TEXT, MASK).to_dict(),
        "loss": {"kind": "softmax_cross_entropy", "ignore": ignore},
    }
    return TrainSpec.parse(fields)


def test_masked_tokens_fit_a_model_of_tokens() -> None:
    inputs, targets = sources.load_for(reader(-100))[0].rows(np.arange(5), 1)
    assert inputs.dtype == targets.dtype == np.int64 and inputs.shape == targets.shape == (5, 40)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: data(IMAGES, {"kind": "blur"}), "augment.0.*'blur'.*one of crop, "),
    (lambda: data(IMAGES, {"kind": "mixup"}, {"kind": "mixup"}), "mixup twice"),
    (lambda: data(IMAGES, {"kind": "mixup"}, train_samples=1), "two training samples"),
    (lambda: data(IMAGES, {"kind": "flip", "probability": 1.5}), "probability.*1.5"),
    (lambda: data(IMAGES, {"kind": "normalise", "mean": [0], "std": [0]}), "std.*greater than 0"),
    (lambda: data(IMAGES, {"kind": "resized_crop", "scale": [0.5, 0.2]}), "scale must be a range"),
    (lambda: data(IMAGES, {"kind": "resized_crop", "ratio": [0, 1]}), "ratio must be a range"),
    (lambda: data(TEXT, {**MASK, "masked": 0.8, "replaced": 0.3}), "exceed 1"),
    (lambda: data(TEXT, {**MASK, "mask_id": 50}), "mask_id 50"),
    (lambda: classifier(MASK), "mask_tokens is for tokens"),
    (lambda: reader(None), "loss.ignore must be that, received None"),
    (lambda: classifier({"kind": "mixup"}, targets="classes"), "mixup.*'distributions'"),
    (lambda: sources.load(data(IMAGES, {"kind": "mixup"}), "float64")[0].rows(np.arange(3)), "how many"),
    (
        lambda: sources.load_for(classifier({"kind": "crop", "padding": 0, "size": [9, 9]})),
        r"crop of size \(9, 9\) from images \(7, 6\)",
    ),
    (lambda: sources.load_for(classifier({"kind": "crop", "size": [5, 5]})), r"\(5, 5, 3\), the model takes"),
]


@pytest.mark.parametrize(("action", "words"), REFUSED, ids=[words[:24] for _, words in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(action: Callable[[], object], words: str) -> None:
    with pytest.raises(SpecError, match=words) as error:
        action()
    one_line(error.value)


@pytest.mark.parametrize("name", ["crop", "flip", "cutout"])
def test_a_batch_is_changed_at_once_and_not_sample_by_sample(name: str) -> None:
    samples, _ = sources.load(data(IMAGES, OPS[name], train_samples=128), "float64", SEED)
    stored = samples.fetch(np.arange(128))
    change = samples.change
    assert change is not None

    def work(ids: np.ndarray) -> int:
        return lines_run(lambda: change(lambda wanted: (stored[0][wanted], stored[1][wanted]), ids, 0))

    assert work(np.arange(128)) < 2 * work(np.array([0]))
