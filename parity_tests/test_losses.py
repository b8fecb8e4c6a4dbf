"""Losses: TensorFlow, PyTorch and NumPy agree, and each convention is the framework's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity.common.reference.losses import loss_sum_and_count
from parity.common.spec import TrainSpec
from parity.common.spec.losses import LossBase, SoftmaxCrossEntropy, parse_loss
from parity_tests.helpers.layers import both, deviation, deviations
from parity_tests.helpers.records import TINY
from parity_tests.peers import Arrays, Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CASES: dict[str, dict[str, Any]] = {
    "cross entropy": {"kind": "softmax_cross_entropy"},
    "smoothed": {"kind": "softmax_cross_entropy", "label_smoothing": 0.1},
    "weighted": {"kind": "softmax_cross_entropy", "class_weights": [0.5, 2.0, 1.0, 3.0]},
    "weighted, smoothed, ignoring": {
        "kind": "softmax_cross_entropy",
        "class_weights": [0.5, 2.0, 1.0, 3.0],
        "label_smoothing": 0.2,
        "ignore": -100,
    },
    "ignoring a class": {"kind": "softmax_cross_entropy", "ignore": 2},
    "masked": {"kind": "softmax_cross_entropy", "mask_padding": True},
    "distributions": {"kind": "softmax_cross_entropy", "targets": "distributions", "label_smoothing": 0.1},
    "probabilities": {"kind": "softmax_cross_entropy", "outputs": "probabilities"},
    "probabilities, distributions": {
        "kind": "softmax_cross_entropy",
        "outputs": "probabilities",
        "targets": "distributions",
    },
    "binary": {"kind": "binary_cross_entropy", "label_smoothing": 0.1, "positive_weight": 3.0},
    "binary probabilities": {"kind": "binary_cross_entropy", "outputs": "probabilities"},
    "squared": {"kind": "mean_squared_error"},
    "absolute": {"kind": "mean_absolute_error"},
    "huber": {"kind": "huber", "delta": 0.7},
    "divergence": {"kind": "kl_divergence"},
    "divergence of logits": {"kind": "kl_divergence", "outputs": "logits"},
}


def resolved(case: dict[str, Any], convention: Any = "keras") -> LossBase:
    return parse_loss(case).resolve(convention)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)


def numbers(loss: LossBase, shape: tuple[int, ...], draw: int) -> Arrays:
    """Outputs, targets and a mask that suit a loss; shape ends in 4 classes."""
    random = np.random.default_rng(draw)
    outputs = random.normal(size=shape)
    form = getattr(loss, "outputs", "")
    if form == "probabilities":
        outputs = softmax(outputs) if loss.kind != "binary_cross_entropy" else 1 / (1 + np.exp(-outputs))
    elif form == "log_probabilities":
        outputs = np.log(softmax(outputs))
    targets = random.normal(size=shape)
    if loss.kind == "softmax_cross_entropy" or loss.kind == "kl_divergence":
        targets = softmax(targets)
    if loss.kind == "binary_cross_entropy":
        targets = random.integers(0, 2, shape).astype(float)
    if loss.target_is_integer:
        targets = random.integers(0, 4, shape[:-1])
        if getattr(loss, "ignore", None) == -100 and targets.size:
            targets.flat[::3] = -100
    mask = random.random(shape[:-1]) < 0.7
    return {"outputs": outputs, "targets": targets, "mask": mask}


def numpy_loss(loss: LossBase, arrays: Arrays, direction: np.ndarray | None = None) -> tuple[Any, float]:
    outputs = arrays["outputs"] if direction is None else arrays["outputs"] + 1e-30j * direction
    return loss_sum_and_count(loss, outputs, arrays["targets"], arrays["mask"])


@pytest.mark.parametrize("name", CASES)
@given(
    lead=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    convention=st.sampled_from(["keras", "torch"]),
    draw=st.integers(0, 2**32 - 1),
)
@FEW
def test_a_loss_is_one_loss(
    peers: dict[str, Peer], vocabulary: Vocabulary, name: str, lead: Any, convention: str, draw: int
) -> None:
    loss = resolved(CASES[name], convention)
    arrays = numbers(loss, (*lead, 4), draw)
    tensorflow, torch = both(peers, "losses:loss", {"loss": loss.to_dict()}, arrays)
    found = deviations(tensorflow, torch)
    total, count = numpy_loss(loss, arrays)
    direction = np.random.default_rng(draw + 1).normal(size=arrays["outputs"].shape)
    slope = np.imag(numpy_loss(loss, arrays, direction)[0]) / 1e-30
    found["numpy sum"] = deviation(torch["sum"], np.array(total))
    found["numpy count"] = deviation(torch["count"], np.array(count))
    found["numpy slope"] = deviation(np.array((torch["gradient"] * direction).sum()), np.array(slope))
    vocabulary.saw("loss", loss.kind, max(found.values()), "TensorFlow, PyTorch, NumPy")
    assert max(found.values()) <= LIMIT, found


@pytest.mark.parametrize("name", CASES)
def test_an_empty_batch_adds_nothing(peers: dict[str, Peer], name: str) -> None:
    loss = resolved(CASES[name])
    arrays = numbers(loss, (0, 3, 4), 0)
    for result in both(peers, "losses:loss", {"loss": loss.to_dict()}, arrays):
        assert result["sum"] == 0 and result["count"] == 0 and result["gradient"].shape == (0, 3, 4)


CE, BCE, KL = "softmax_cross_entropy", "binary_cross_entropy", "kl_divergence"
WEIGHTS = [0.5, 2.0, 1.0, 3.0]
# Of Keras: the class and its options; and ours, under the convention "keras".
KERAS = [
    ("SparseCategoricalCrossentropy", {"from_logits": True}, {"kind": CE}),
    ("SparseCategoricalCrossentropy", {}, {"kind": CE, "outputs": "probabilities"}),
    ("SparseCategoricalCrossentropy", {"from_logits": True, "ignore_class": 2}, {"kind": CE, "ignore": 2}),
    (
        "CategoricalCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        {"kind": CE, "targets": "distributions", "label_smoothing": 0.1},
    ),
    ("CategoricalCrossentropy", {}, {"kind": CE, "outputs": "probabilities", "targets": "distributions"}),
    (
        "BinaryCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        {"kind": BCE, "label_smoothing": 0.1},
    ),
    ("BinaryCrossentropy", {}, {"kind": BCE, "outputs": "probabilities"}),
    ("MeanSquaredError", {}, {"kind": "mean_squared_error"}),
    ("MeanAbsoluteError", {}, {"kind": "mean_absolute_error"}),
    ("Huber", {"delta": 0.7}, {"kind": "huber", "delta": 0.7}),
    ("KLDivergence", {}, {"kind": KL}),
]
TORCH = [
    ("CrossEntropyLoss", {}, {"kind": CE}),
    ("CrossEntropyLoss", {"weight": WEIGHTS}, {"kind": CE, "class_weights": WEIGHTS}),
    ("CrossEntropyLoss", {"ignore_index": 2}, {"kind": CE, "ignore": 2}),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}, {"kind": CE, "label_smoothing": 0.1}),
    ("CrossEntropyLoss", {}, {"kind": CE, "targets": "distributions"}),
    ("BCEWithLogitsLoss", {"pos_weight": 3.0}, {"kind": BCE, "positive_weight": 3.0}),
    ("BCELoss", {}, {"kind": BCE, "outputs": "probabilities"}),
    ("MSELoss", {}, {"kind": "mean_squared_error"}),
    ("L1Loss", {}, {"kind": "mean_absolute_error"}),
    ("HuberLoss", {"delta": 0.7}, {"kind": "huber", "delta": 0.7}),
    ("KLDivLoss", {"reduction": "batchmean"}, {"kind": KL}),
]


def against_stock(peers: dict[str, Peer], stock: str, entry: tuple[Any, Any, Any], convention: str) -> float:
    """The other framework's deviation from a stock class under the stock class's convention."""
    name, options, case = entry
    loss = resolved(case, convention)
    # Keras averages a divergence over samples and PyTorch's batchmean divides by the first axis alone.
    shape = (6, 4)
    arrays = numbers(loss, shape, 7)
    if loss.kind == "softmax_cross_entropy" and loss.outputs == "probabilities":
        arrays["outputs"][0] = [1 - 3e-9, 1e-9, 1e-9, 1e-9]  # where clipping shows
        if loss.target_is_integer:
            arrays["targets"][0] = 1
    facts = {"name": name, "options": options, "classes_first": False}
    theirs = peers[stock]("losses:stock", facts, arrays)
    other = "torch" if stock == "tensorflow" else "tensorflow"
    ours = peers[other]("losses:loss", {"loss": loss.to_dict()}, arrays)
    mean, gradient = ours["sum"] / ours["count"], ours["gradient"] / ours["count"]
    return max(deviation(mean, theirs["mean"]), deviation(gradient, theirs["gradient"]))


@pytest.mark.parametrize("entry", KERAS, ids=lambda e: f"{e[0]} {e[1]}")
def test_torch_computes_keras_losses(peers: dict[str, Peer], vocabulary: Vocabulary, entry: Any) -> None:
    found = against_stock(peers, "tensorflow", entry, "keras")
    vocabulary.saw("loss", entry[2]["kind"], found, f"keras.losses.{entry[0]}")
    assert found <= LIMIT


@pytest.mark.parametrize("entry", TORCH, ids=lambda e: f"{e[0]} {e[1]}")
def test_tensorflow_computes_torch_losses(peers: dict[str, Peer], vocabulary: Vocabulary, entry: Any) -> None:
    found = against_stock(peers, "torch", entry, "torch")
    vocabulary.saw("loss", entry[2]["kind"], found, f"torch.nn.{entry[0]}")
    assert found <= LIMIT


@pytest.mark.parametrize(
    ("stock", "entry", "convention"),
    [
        ("tensorflow", KERAS[1], "torch"),  # clipping
        ("torch", TORCH[1], "keras"),  # what a weighted mean divides by
        ("torch", ("CrossEntropyLoss", {"label_smoothing": 0.1}, {"kind": CE}), "torch"),
        ("torch", ("HuberLoss", {"delta": 0.7}, {"kind": "huber"}), "torch"),
        (
            "tensorflow",
            ("SparseCategoricalCrossentropy", {"from_logits": True}, {"kind": CE, "ignore": 2}),
            "keras",
        ),
    ],
)
def test_the_wrong_setting_is_seen(peers: dict[str, Peer], stock: str, entry: Any, convention: str) -> None:
    assert against_stock(peers, stock, entry, convention) > 1e-6


def test_what_is_ignored_is_not_counted() -> None:
    loss = SoftmaxCrossEntropy(ignore=1)
    total, count = loss_sum_and_count(loss, np.zeros((4, 3)), np.array([0, 1, 1, 2]))
    assert count == 2 and total == pytest.approx(2 * np.log(3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": {"kind": CE, "class_weights": [1.0, 2.0]}}, ["class_weights has 2", "3 classes"]),
        ({"loss": {"kind": CE, "targets": "distributions", "ignore": 1}}, ["integer targets"]),
        ({"loss": {"kind": CE, "mask_padding": True}}, ["mask_padding", "pad_id"]),
        ({"loss": {"kind": "hinge"}}, ["hinge", "huber"]),
        ({"loss": {"kind": "huber", "delta": 0}}, ["loss.delta", "greater than 0"]),
    ],
)
def test_a_loss_that_does_not_suit_is_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        TrainSpec.parse({**TINY, **changes})
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("loss", "shape", "counted"),
    [
        ({"kind": CE}, (3,), 1),
        ({"kind": CE}, (5, 3), 5),
        ({"kind": CE, "ignore": 0}, (5, 3), None),
        ({"kind": CE, "mask_padding": True}, (5, 3), None),
        ({"kind": CE, "class_weights": WEIGHTS, "class_weight_mean": "weights"}, (4,), None),
        ({"kind": CE, "class_weights": WEIGHTS, "class_weight_mean": "count"}, (4,), 1),
        ({"kind": "mean_squared_error"}, (5, 3), 15),
        ({"kind": KL}, (5, 3), 5),
    ],
)
def test_what_a_sample_adds_to_the_count(
    loss: dict[str, Any], shape: tuple[int, ...], counted: int | None
) -> None:
    """The audit holds a record's counts against it; None where it depends on the sample."""
    spec = parse_loss(loss).resolve("torch")
    assert spec.counted(shape) == counted
    if counted is not None:
        shape = (*shape[:-1], 4)  # what `numbers` makes
        assert numpy_loss(spec, numbers(spec, (2, *shape), 0))[1] == 2 * spec.counted(shape)
