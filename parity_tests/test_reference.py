"""The NumPy formulas, against hand-worked cases and against the papers written out in scalars."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.common.reference import (
    clip_factor,
    initial_slots,
    learning_rate,
    step_scalars,
    update,
)
from parity.common.reference.losses import loss_sum_and_count
from parity.common.spec import TrainSpec
from parity.common.spec.losses import SoftmaxCrossEntropy
from parity_tests.helpers.records import TINY

PLAIN = SoftmaxCrossEntropy(clip=0.0)
RATES = [0.1, 0.1, 0.05, 0.02, 0.3]
GRADIENTS = [0.5, -1.25, 2.0, 1e-4, -0.75]


def spec_of(optimizer: dict[str, object], convention: str = "keras", **fields: object) -> TrainSpec:
    data = {
        **TINY,
        "convention": convention,
        "schedule": {"kind": "constant"},
        "optimizer": optimizer,
        **fields,
    }
    return TrainSpec.parse(data).resolved()


def trajectory(spec: TrainSpec, rates: list[float] = RATES, start: float = 1.0) -> list[float]:
    """Weights after each of GRADIENTS, by the code under test, with the learning rate of each step."""
    optimizer = spec.optimizer
    weight = np.array([start])
    slots = {name: np.full(*initial) for name, initial in initial_slots(optimizer, "w", (1,)).items()}
    weights = []
    for step, (rate, gradient) in enumerate(zip(rates, GRADIENTS, strict=True)):
        scalars = step_scalars(optimizer, step, rate)
        weight, slots = update(optimizer, scalars, weight, np.array([gradient]), slots)
        weights.append(float(weight[0]))
    return weights


def keras_sgd(w: float, mu: float, nesterov: bool, wd: float) -> list[float]:
    """keras.optimizers.SGD: v = mu*v - lr*g; w += v, or mu*v - lr*g with Nesterov; decay decoupled."""
    v, weights = 0.0, []
    for lr, g in zip(RATES, GRADIENTS, strict=True):
        w -= lr * wd * w
        v = mu * v - lr * g
        w = w + mu * v - lr * g if nesterov else w + v
        weights.append(w)
    return weights


def torch_sgd(w: float, mu: float, nesterov: bool, wd: float) -> list[float]:
    """torch.optim.SGD's documented algorithm, dampening 0: the buffer starts as the first gradient."""
    b, weights = None, []
    for lr, g in zip(RATES, GRADIENTS, strict=True):
        g = g + wd * w
        if mu:
            b = g if b is None else mu * b + g
            g = g + mu * b if nesterov else b
        w = w - lr * g
        weights.append(w)
    return weights


def keras_adam(w: float, eps: float, wd: float) -> list[float]:
    """keras.optimizers.Adam(W): alpha = lr*sqrt(1-b2^t)/(1-b1^t); w -= alpha*m/(sqrt(v)+eps)."""
    m = v = 0.0
    weights = []
    for t, (lr, g) in enumerate(zip(RATES, GRADIENTS, strict=True), start=1):
        w -= w * wd * lr
        m += (g - m) * (1 - 0.9)
        v += (g * g - v) * (1 - 0.999)
        alpha = lr * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        w -= m * alpha / (math.sqrt(v) + eps)
        weights.append(w)
    return weights


def torch_adam(w: float, eps: float, wd: float, decoupled: bool) -> list[float]:
    """torch.optim.Adam / AdamW's documented algorithm: corrected moments, epsilon added last."""
    m = v = 0.0
    weights = []
    for t, (lr, g) in enumerate(zip(RATES, GRADIENTS, strict=True), start=1):
        if decoupled:
            w -= lr * wd * w
        else:
            g += wd * w
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.999 * v + (1 - 0.999) * g * g
        w -= lr * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + eps)
        weights.append(w)
    return weights


SGD_CASES = [(0.0, False, 0.0), (0.0, False, 0.1), (0.9, False, 0.0), (0.9, True, 0.0), (0.9, True, 0.2)]


@pytest.mark.parametrize("case", SGD_CASES, ids=str)
@pytest.mark.parametrize(("convention", "formula"), [("keras", keras_sgd), ("torch", torch_sgd)])
def test_sgd_is_the_frameworks_own(
    convention: str, formula: Callable[..., list[float]], case: tuple[float, bool, float]
) -> None:
    momentum, nesterov, decay = case
    optimizer = {"kind": "sgd", "learning_rate": 1, "momentum": momentum, "nesterov": nesterov}
    spec = spec_of({**optimizer, "weight_decay": decay}, convention)
    assert trajectory(spec) == pytest.approx(formula(1.0, *case), rel=1e-14)
    # A wrong momentum must show.
    assert trajectory(spec) != pytest.approx(formula(1.0, momentum + 0.01, nesterov, decay), rel=1e-6)


def test_plain_sgd_by_hand() -> None:
    spec = spec_of({"kind": "sgd", "learning_rate": 1})
    # 1 - .1*.5 = .95; + .125 = 1.075; - .1 = .975; - 2e-6; + .225
    assert trajectory(spec) == pytest.approx([0.95, 1.075, 0.975, 0.974998, 1.199998], rel=1e-14)
    assert initial_slots(spec.optimizer, "w", (1,)) == {}


@pytest.mark.parametrize("nesterov", [False, True])
def test_velocity_and_buffer_agree_until_the_learning_rate_changes(nesterov: bool) -> None:
    forms = [
        spec_of(
            {"kind": "sgd", "learning_rate": 1, "momentum": 0.9, "nesterov": nesterov, "momentum_form": form}
        )
        for form in ("velocity", "buffer")
    ]
    velocity, buffer = (trajectory(spec, rates=[0.1] * 5) for spec in forms)
    assert velocity == pytest.approx(buffer, rel=1e-14)
    velocity, buffer = map(trajectory, forms)
    assert velocity[:2] == pytest.approx(buffer[:2], rel=1e-14)  # RATES changes at the third step
    assert abs(velocity[2] - buffer[2]) > 1e-3


ADAMS = {
    "keras adam": ("adam", "keras", lambda: keras_adam(1.0, 1e-7, 0.0)),
    "keras adam, decay": ("adam", "keras", lambda: keras_adam(1.0, 1e-7, 0.2)),
    "keras adamw": ("adamw", "keras", lambda: keras_adam(1.0, 1e-7, 0.004)),
    "torch adam": ("adam", "torch", lambda: torch_adam(1.0, 1e-8, 0.0, False)),
    "torch adam, decay": ("adam", "torch", lambda: torch_adam(1.0, 1e-8, 0.2, False)),
    "torch adamw": ("adamw", "torch", lambda: torch_adam(1.0, 1e-8, 0.01, True)),
}


@pytest.mark.parametrize("name", ADAMS)
def test_adam_is_the_frameworks_own(name: str) -> None:
    kind, convention, formula = ADAMS[name]
    decay = {"weight_decay": 0.2} if "decay" in name else {}
    spec = spec_of({"kind": kind, "learning_rate": 1, **decay}, convention)
    assert trajectory(spec) == pytest.approx(formula(), rel=1e-13)


def test_the_six_adams_are_six() -> None:
    ends = sorted(formula()[-1] for _, _, formula in ADAMS.values())
    assert min(b - a for a, b in pairwise(ends)) > 1e-10


@given(st.floats(1e-10, 1e-2), st.integers(0, 2000), st.floats(1e-6, 10))
def test_epsilon_outside_is_epsilon_inside_scaled(epsilon: float, step: int, gradient: float) -> None:
    """eps_K = eps_PT * sqrt(1 - b2^t) (DIFFERENCES row 11)."""
    scaled = epsilon * math.sqrt(1 - 0.999 ** (step + 1))
    inside = {"kind": "adam", "learning_rate": 0.1, "epsilon": epsilon, "epsilon_place": "inside"}
    outside = {**inside, "epsilon": scaled, "epsilon_place": "outside"}
    results = []
    for optimizer in (inside, outside, {**outside, "epsilon": epsilon}):
        spec = spec_of(optimizer)
        slots = {"first_moment": np.array([0.3]), "second_moment": np.array([0.01 * gradient])}
        scalars = step_scalars(spec.optimizer, step, 0.1)
        changed, _ = update(spec.optimizer, scalars, np.array([0.0]), np.array([gradient]), slots)
        results.append(float(changed[0]))
    assert results[0] == pytest.approx(results[1], rel=1e-12)
    if step < 10 and epsilon > 1e-3:
        assert results[0] != pytest.approx(results[2], rel=1e-6)


def test_the_first_adam_step_is_the_learning_rate() -> None:
    """Kingma and Ba, section 2.1: with corrected moments the first step is lr * g / (|g| + eps)."""
    for convention in ("keras", "torch"):
        spec = spec_of({"kind": "adam", "learning_rate": 0.1}, convention)
        assert trajectory(spec)[0] == pytest.approx(1 - 0.1, rel=1e-5)


def schedule(warmup: int, steps: int, **fields: object) -> Callable[[int], float]:
    spec = spec_of(
        {"kind": "sgd", "learning_rate": 0.8},
        schedule={"kind": "warmup_cosine", "warmup_steps": warmup, **fields},
        steps=steps,
    )
    return lambda step: learning_rate(spec, step)


def test_warmup_and_cosine_by_hand() -> None:
    rate = schedule(4, 12)
    assert [rate(step) for step in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert rate(4) == 0.8  # progress 0: the cosine starts at its top
    assert rate(6) == pytest.approx(0.8 * (1 + math.sqrt(0.5)) / 2)  # a quarter: cos(pi/4)
    assert rate(8) == pytest.approx(0.4)  # half way: cos(pi/2) = 0
    assert rate(12) == pytest.approx(0.0, abs=1e-16)
    assert rate(100) == rate(12)
    assert schedule(0, 12)(0) == 0.8


def test_the_cosine_ends_at_its_final_fraction_after_its_own_steps() -> None:
    rate = schedule(0, 100, decay_steps=10, final_fraction=0.25)
    assert rate(5) == pytest.approx(0.8 * (0.25 + 0.75 / 2))
    assert [rate(step) for step in (10, 11, 99)] == pytest.approx([0.2] * 3)
    assert schedule(0, 100)(10) > 0.7  # without decay_steps it takes all the steps


def test_a_warmup_longer_than_the_run_only_rises() -> None:
    rates = [schedule(50, 10)(step) for step in range(10)]
    assert rates == pytest.approx([0.8 * (step + 1) / 50 for step in range(10)])


def test_the_constant_schedule_is_constant() -> None:
    spec = spec_of({"kind": "sgd", "learning_rate": 0.3})
    assert {learning_rate(spec, step) for step in (0, 1, 5000)} == {0.3}


def factor(spec: TrainSpec, norm: float) -> float:
    optimizer = spec.optimizer
    return clip_factor(optimizer.clip_global_norm, optimizer.clip_epsilon, norm)


@pytest.mark.parametrize("norm", [0.0, 0.5, 0.9999995, 1.0, 1.0000005, 4.0, 1e9])
@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_clipping_by_the_global_norm(convention: str, norm: float) -> None:
    """tf.clip_by_global_norm: c*min(1/n, 1/c). clip_grad_norm_: min(1, c/(n+1e-6)) (row 17)."""
    spec = spec_of({"kind": "sgd", "learning_rate": 1, "clip_global_norm": 1.0}, convention)
    if convention == "keras":
        expected = 1.0 * min(1 / norm, 1 / 1.0) if norm else 1.0
    else:
        expected = min(1.0, 1.0 / (norm + 1e-6))
    assert factor(spec, norm) == pytest.approx(expected, rel=1e-15)


def test_the_two_clippings_differ_and_none_means_none() -> None:
    optimizer = {"kind": "sgd", "learning_rate": 1, "clip_global_norm": 2.0}
    factors = [factor(spec_of(optimizer, c), 4.0) for c in ("keras", "torch")]
    assert factors[0] == 0.5 and 0 < factors[0] - factors[1] < 2e-7
    assert factor(spec_of({"kind": "sgd", "learning_rate": 1}), 1e30) == 1.0
    assert math.isnan(factor(spec_of(optimizer), math.nan)), "a NaN norm must not be hidden"


def exact_loss(logits: list[float], label: int) -> float:
    with localcontext() as context:
        context.prec = 60
        terms = [Decimal(x).exp() for x in logits]
        return float(sum(terms, Decimal(0)).ln() - Decimal(logits[label]))


@given(st.lists(st.floats(-1000, 1000), min_size=2, max_size=6), st.data())
def test_softmax_cross_entropy_is_exact_at_extreme_logits(logits: list[float], data: st.DataObject) -> None:
    label = data.draw(st.integers(0, len(logits) - 1))
    loss, count = loss_sum_and_count(PLAIN, np.array([logits]), np.array([label]))
    # Rounding of a difference of logits of size up to 1000.
    assert loss == pytest.approx(exact_loss(logits, label), rel=1e-13, abs=3e-13)
    assert count == 1


def test_softmax_cross_entropy_sums_over_samples() -> None:
    logits = np.array([[0.0, 0.0], [math.log(3), 0.0], [1e4, -1e4]])
    loss, count = loss_sum_and_count(PLAIN, logits, np.array([0, 0, 1]))
    assert loss == pytest.approx(math.log(2) + math.log(4 / 3) + 2e4, rel=1e-15)
    assert count == 3
    assert loss_sum_and_count(PLAIN, logits, np.array([0, 1, 1]))[0] - loss == pytest.approx(math.log(3))
