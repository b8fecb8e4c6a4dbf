"""Learning rates: by hand, and against the schedules that Keras and PyTorch ship."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.reference import StepScalars, learning_rate
from parity.common.spec import TrainSpec
from parity_tests.helpers.matrix import small, tensorflow, torch
from parity_tests.helpers.records import TINY, one_line
from parity_tests.helpers.run_cache import RunCache
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

STEPS = 60
RATE = 0.1
# A few roundings, or sixty: PyTorch multiplies the last rate by a quotient. Keras computes in float32
# if given Python's floats; the peer gives it NumPy's, and it computes in float64.
LIMIT = 1e-14
REFEREES = {"keras": "keras.optimizers.schedules", "torch": "torch.optim.lr_scheduler"}
FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def spec_of(schedule: dict[str, Any], convention: str = "keras", **fields: Any) -> TrainSpec:
    optimizer = {"kind": "sgd", "learning_rate": RATE}
    data = {**TINY, "optimizer": optimizer, "schedule": schedule, "convention": convention, "steps": STEPS}
    return TrainSpec.parse({**data, **fields}).resolved()


def rates(schedule: dict[str, Any], convention: str = "keras", steps: int = STEPS, **fields: Any) -> Any:
    spec = spec_of(schedule, convention, **fields)
    return np.array([learning_rate(spec, step) for step in range(steps)])


@dataclass(frozen=True)
class Case:
    """A schedule as a spec, as Keras's class, and as PyTorch's, one or several that take turns."""

    ours: dict[str, Any]
    keras: tuple[str, dict[str, Any]] | None = None
    torch: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    milestones: tuple[int, ...] = ()


_RISE = {"steps": 8, "start_fraction": 0.2}
CASES = {
    "step": Case(
        {"kind": "step", "every": 7, "factor": 0.5}, None, [("StepLR", {"step_size": 7, "gamma": 0.5})]
    ),
    "piecewise": Case(
        {"kind": "piecewise", "boundaries": [10, 25], "fractions": [1.0, 0.3, 0.09]},
        ("PiecewiseConstantDecay", {"boundaries": [10, 25], "values": [RATE, 0.3 * RATE, 0.09 * RATE]}),
        [("MultiStepLR", {"milestones": [10, 25], "gamma": 0.3})],
    ),
    "exponential": Case(
        {"kind": "exponential", "decay_rate": 0.8, "decay_steps": 7},
        ("ExponentialDecay", {"initial_learning_rate": RATE, "decay_steps": 7, "decay_rate": 0.8}),
        [("ExponentialLR", {"gamma": 0.8 ** (1 / 7)})],
    ),
    "staircase": Case(
        {"kind": "exponential", "decay_rate": 0.8, "decay_steps": 7, "staircase": True},
        (
            "ExponentialDecay",
            {"initial_learning_rate": RATE, "decay_steps": 7, "decay_rate": 0.8, "staircase": True},
        ),
        [("StepLR", {"step_size": 7, "gamma": 0.8})],
    ),
    "polynomial": Case(
        {"kind": "polynomial", "decay_steps": 20, "power": 2.0},
        (
            "PolynomialDecay",
            {"initial_learning_rate": RATE, "decay_steps": 20, "end_learning_rate": 0.0, "power": 2.0},
        ),
        [("PolynomialLR", {"total_iters": 20, "power": 2.0})],
    ),
    "polynomial, cycling": Case(
        {"kind": "polynomial", "decay_steps": 20, "power": 0.5, "final_fraction": 0.2, "cycle": True},
        (
            "PolynomialDecay",
            {
                "initial_learning_rate": RATE,
                "decay_steps": 20,
                "end_learning_rate": 0.2 * RATE,
                "power": 0.5,
                "cycle": True,
            },
        ),
    ),
    "linear": Case(
        {"kind": "linear", "ramp_steps": 9, "start_fraction": 0.25, "final_fraction": 0.75},
        None,
        [("LinearLR", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 9})],
    ),
    "cosine": Case(
        {"kind": "warmup_cosine", "decay_steps": 59, "final_fraction": 0.1},
        ("CosineDecay", {"initial_learning_rate": RATE, "decay_steps": 59, "alpha": 0.1}),
        [("CosineAnnealingLR", {"T_max": 59, "eta_min": 0.1 * RATE})],
    ),
    "cosine, warm": Case(
        {"kind": "warmup_cosine", "decay_steps": 52, "warmup": _RISE},
        (
            "CosineDecay",
            {
                "initial_learning_rate": 0.2 * RATE,
                "decay_steps": 52,
                "warmup_target": RATE,
                "warmup_steps": 8,
            },
        ),
        [("LinearLR", {"start_factor": 0.2, "total_iters": 8}), ("CosineAnnealingLR", {"T_max": 52})],
        (8,),
    ),
    "cosine_restarts": Case(
        {"kind": "cosine_restarts", "first_steps": 9, "final_fraction": 0.05},
        ("CosineDecayRestarts", {"initial_learning_rate": RATE, "first_decay_steps": 9, "alpha": 0.05}),
        [("CosineAnnealingWarmRestarts", {"T_0": 9, "eta_min": 0.05 * RATE})],
    ),
    "cosine_restarts, shrinking": Case(
        {"kind": "cosine_restarts", "first_steps": 10, "stretch": 1.5, "shrink": 0.7},
        (
            "CosineDecayRestarts",
            {"initial_learning_rate": RATE, "first_decay_steps": 10, "t_mul": 1.5, "m_mul": 0.7},
        ),
    ),
    "cosine_restarts, stretching": Case(
        {"kind": "cosine_restarts", "first_steps": 5, "stretch": 2.0},
        None,
        [("CosineAnnealingWarmRestarts", {"T_0": 5, "T_mult": 2})],
    ),
    "one_cycle": Case(
        {"kind": "one_cycle"},
        None,
        [("OneCycleLR", {"max_lr": RATE, "total_steps": STEPS, "cycle_momentum": False})],
    ),
    "one_cycle, three phases": Case(
        {
            "kind": "one_cycle",
            "rise_fraction": 0.2,
            "three_phase": True,
            "anneal": "linear",
            "total_steps": 70,
        },
        None,
        [
            (
                "OneCycleLR",
                {
                    "max_lr": RATE,
                    "total_steps": 70,
                    "cycle_momentum": False,
                    "pct_start": 0.2,
                    "three_phase": True,
                    "anneal_strategy": "linear",
                },
            )
        ],
    ),
    "constant, warm": Case(
        {"kind": "constant", "warmup": {**_RISE, "shape": "constant"}},
        None,
        [("ConstantLR", {"factor": 0.2, "total_iters": 8})],
    ),
    "exponential, warm": Case(
        {"kind": "exponential", "decay_rate": 0.9, "warmup": _RISE},
        None,
        [("LinearLR", {"start_factor": 0.2, "total_iters": 8}), ("ExponentialLR", {"gamma": 0.9})],
        (8,),
    ),
}
STOCK = [(name, c) for name, case in CASES.items() for c in ("keras", "torch") if getattr(case, c)]


@pytest.mark.parametrize(("name", "convention"), STOCK)
def test_a_schedule_is_the_frameworks_own(
    peers: dict[str, Peer], vocabulary: Vocabulary, name: str, convention: str
) -> None:
    case = CASES[name]
    facts: dict[str, Any] = {"steps": STEPS, "rate": RATE, "milestones": case.milestones}
    if convention == "keras":
        assert case.keras is not None
        facts |= {"name": case.keras[0], "options": case.keras[1]}
    else:
        facts |= {"chain": case.torch}
    peer = peers["tensorflow" if convention == "keras" else "torch"]
    expected = peer("optimizers:schedule", facts, {})["rates"]
    ours = rates(case.ours, convention)
    found = float(np.abs(ours - expected).max() / RATE)
    assert found <= LIMIT
    vocabulary.saw("schedule", case.ours["kind"], found, REFEREES[convention])
    late = rates(case.ours, convention, STEPS + 1)[1:]
    assert np.abs(late - expected).max() / RATE > 1e-4, "a schedule that is one step late must show"
    if name in ("piecewise", "cosine_restarts"):
        other = rates(case.ours, "torch" if convention == "keras" else "keras")
        assert np.abs(other - expected).max() / RATE > 1e-4


def test_inverse_sqrt_by_hand(vocabulary: Vocabulary) -> None:
    """Vaswani et al. 2017, equation 3, with d_model 64 and 10 steps of warm-up."""
    peak = 64**-0.5 * 10**-0.5
    spec = spec_of({"kind": "inverse_sqrt", "peak_step": 10})
    spec = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update={"learning_rate": peak})})
    expected = np.array([64**-0.5 * min((s + 1) ** -0.5, (s + 1) * 10**-1.5) for s in range(50)])
    ours = np.array([learning_rate(spec, s) for s in range(50)])
    found = float(np.abs(ours / expected - 1).max())
    assert found <= LIMIT
    vocabulary.saw("schedule", "inverse_sqrt", found, "the paper's formula")


def test_linear_scaling_and_gradual_warmup_by_hand() -> None:
    """Goyal et al. 2017: 16 samples at base 4 take 4 times the rate, reached from once the rate."""
    rise = {"steps": 3, "start_fraction": 0.25}
    found = rates({"kind": "constant", "base_batch_size": 4, "warmup": rise}, steps=5)
    assert found == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4], rel=1e-15)
    assert rates({"kind": "constant", "base_batch_size": 4}, steps=1, global_batch_size=6) == pytest.approx(
        0.15
    )
    stairs = rates({"kind": "step", "every": 2, "base_batch_size": 32}, steps=4)
    assert stairs == pytest.approx([0.05, 0.05, 0.005, 0.005], rel=1e-15)


def test_exponential_warmup_by_hand() -> None:
    rise = {"steps": 4, "start_fraction": 1e-4, "shape": "exponential"}
    found = rates({"kind": "constant", "warmup": rise}, steps=6)
    assert found == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.1], rel=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_a_warmup_delays_the_schedule(name: str) -> None:
    ours = {**CASES[name].ours, "warmup": None}
    # What lasts as long as the run lasts as long as what is left of it.
    shorter = spec_of(ours).model_copy(update={"steps": 55})
    plain = np.array([learning_rate(shorter, step) for step in range(55)])
    warm = rates({**ours, "warmup": {"steps": 5, "start_fraction": 0.5}})
    assert (warm[5:] == plain).all()
    assert warm[:6] == pytest.approx(plain[0] * np.linspace(0.5, 1.0, 6), rel=1e-14)


# Losses that fall, stall, fall too little, rise, and fall again.
LOSSES = [1.0, 0.5, 0.5, 0.49999, 0.49996, 0.6, 0.7, 0.3, 0.31, 0.32, 0.2999, 0.33, 0.29, 0.2, 0.2, 0.2, 0.2]
LOSSES += [0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.09995, 0.09993, 0.0999, 0.05] + [0.05] * 25


def watched(spec: TrainSpec, losses: list[float], steps_per_epoch: int = 3) -> list[float]:
    """The rate of each epoch's first step, the loss of the epoch being spread unevenly over its steps."""
    scalars, found = StepScalars(spec), []
    for epoch, loss in enumerate(losses):
        found.append(scalars.rate(epoch * steps_per_epoch))
        counts = [16, 16, 5]
        for within, (count, share) in enumerate(zip(counts, (0.5, 2.0, None), strict=True)):
            before = loss * (0.5 * 16 + 2.0 * 16)
            sum_ = loss * share * count if share is not None else loss * sum(counts) - before
            scalars.observe(epoch * steps_per_epoch + within, sum_, count)
    return found


PLATEAUS = [
    {"factor": 0.5, "patience": 2},
    {"factor": 0.3, "patience": 0},
    {"factor": 0.5, "patience": 1, "cooldown": 2},
    {"factor": 0.5, "patience": 3, "cooldown": 3},
    {"factor": 0.1, "patience": 1, "floor": 0.004},
    {"factor": 0.5, "patience": 1, "threshold": 0.05},
]


@pytest.mark.parametrize("options", PLATEAUS, ids=str)
@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_plateaus_are_the_frameworks_own(
    peers: dict[str, Peer], vocabulary: Vocabulary, convention: str, options: dict[str, Any]
) -> None:
    options = dict(options)
    floor, threshold = options.pop("floor", 0.0), options.pop("threshold", 1e-4)
    ours = {"kind": "reduce_on_plateau", "smallest_rate": floor, "threshold": threshold, **options}
    # TINY has 37 samples in batches of 16: three steps an epoch.
    found = watched(spec_of(ours, convention), LOSSES)
    if convention == "keras":
        stock = {**options, "min_delta": threshold, "min_lr": floor}
        facts = {"name": "ReduceLROnPlateau", "options": stock, "losses": LOSSES, "rate": RATE}
        expected = peers["tensorflow"]("optimizers:schedule", facts, {})["rates"]
    else:
        stock = {**options, "threshold": threshold, "min_lr": floor}
        facts = {
            "chain": [("ReduceLROnPlateau", stock)],
            "losses": LOSSES,
            "rate": RATE,
            "steps": len(LOSSES),
        }
        expected = peers["torch"]("optimizers:schedule", facts, {})["rates"]
    assert len(set(expected.tolist())) > 2
    deviation = float(np.abs(found - expected).max() / RATE)
    assert deviation <= LIMIT
    vocabulary.saw("schedule", "reduce_on_plateau", deviation, REFEREES[convention])
    other = watched(spec_of(ours, "torch" if convention == "keras" else "keras"), LOSSES)
    assert np.abs(other - expected).max() / RATE > 1e-4


@given(seed=st.integers(0, 2**32 - 1), stopped=st.integers(0, 59))
@FEW
def test_a_resumed_run_knows_what_it_would_have_known(seed: int, stopped: int) -> None:
    random = np.random.default_rng(seed)
    losses = random.uniform(0.9, 1.1, 60)
    spec = spec_of({"kind": "reduce_on_plateau", "patience": 1, "factor": 0.5, "warmup": _RISE})
    whole, again = StepScalars(spec), StepScalars(spec)
    seen = []
    for step, loss in enumerate(losses):
        seen.append(whole.scalars(step)["learning_rate"])
        whole.observe(step, loss, 1.0)
    for step, loss in enumerate(losses[:stopped]):
        again.observe(step, loss, 1.0)
    for step in range(stopped, 60):
        assert again.rate(step) == seen[step]
        again.observe(step, losses[step], 1.0)
    assert seen[0] == 0.2 * RATE and seen[-1] < RATE


def test_a_run_slows_down_on_a_plateau_alike_everywhere(run_cache: RunCache) -> None:
    schedule = (
        "schedule={kind: reduce_on_plateau, patience: 0, factor: 0.5, threshold: 0.3, warmup: {steps: 3}}"
    )
    spec = small("digits_mlp", "steps=30", schedule, "data.train_samples=68", "convention=torch")
    placements = [tensorflow(2), torch("ddp", 2)]
    for placement in placements:
        run_cache.begin(spec, placement)
    first, second = (run_cache.record(spec, placement) for placement in placements)
    comparison = compare(first, second, proof_budget(first))
    assert comparison.verdict == "parity", comparison.reason
    seen = first.columns["learning_rate"]
    assert seen[0] == 0 and seen.max() == RATE and seen[-1] <= RATE / 4
    # A rate holds for whole epochs of two steps, once the warm-up is over.
    assert (seen[4::2] == seen[5::2]).all()


WRONG = {
    "fractions": (
        {"kind": "piecewise", "boundaries": [3], "fractions": [1.0]},
        "1 boundaries need 2 fractions",
    ),
    "falling": ({"kind": "piecewise", "boundaries": [3, 3], "fractions": [1.0] * 3}, "boundaries must rise"),
    "from zero": (
        {"kind": "constant", "warmup": {"steps": 3, "shape": "exponential"}},
        "start_fraction above 0",
    ),
    "two warm-ups": ({"kind": "warmup_cosine", "warmup_steps": 3, "warmup": {"steps": 3}}, "not both"),
    "no steps": ({"kind": "step", "every": 0}, "greater than 0"),
    "rising": ({"kind": "reduce_on_plateau", "factor": 1.0}, "less than 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case: str) -> None:
    schedule, words = WRONG[case]
    with pytest.raises(SpecError) as error:
        spec_of(schedule)
    assert words in one_line(error.value)


def test_rates_stay_finite_and_never_negative() -> None:
    for case in CASES.values():
        found = rates(case.ours, steps=500)
        assert np.isfinite(found).all() and (found >= 0).all() and found.max() <= RATE * (1 + 1e-15)
