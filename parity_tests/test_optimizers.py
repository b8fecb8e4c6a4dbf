"""Optimizers: TensorFlow, PyTorch and NumPy agree, and each convention is the framework's own class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common import reference
from parity.common.base.errors import SpecError
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.spec import TrainSpec
from parity.common.state.canonical import initial_state, parameter_specs
from parity_tests.helpers.layers import both, deviation
from parity_tests.helpers.matrix import small, tensorflow, torch
from parity_tests.helpers.records import TINY, one_line
from parity_tests.helpers.run_cache import RunCache
from parity_tests.peers import Arrays, Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

FEW = settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STEPS = 6
STOCK_STEPS = 30
REFEREES = {"keras": "keras.optimizers", "torch": "torch.optim"}


@dataclass(frozen=True)
class Case:
    """An optimizer as a spec, and as each framework's class with its options."""

    ours: dict[str, Any]
    keras: tuple[str, dict[str, Any]] | None = None
    torch: tuple[str, dict[str, Any]] | None = None
    more: dict[str, Any] = field(default_factory=dict)  # facts for torch's class
    control: dict[str, Any] | None = None  # a changed field, where the conventions are the same


_MOMENTUM = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.02}
CASES = {
    "sgd": Case(
        {"kind": "sgd", "learning_rate": 0.1}, ("SGD", {}), ("SGD", {}), control={"learning_rate": 0.1001}
    ),
    "sgd, momentum": Case(
        {"kind": "sgd", "learning_rate": 0.1, **_MOMENTUM}, ("SGD", _MOMENTUM), ("SGD", _MOMENTUM)
    ),
    "adam": Case(
        {"kind": "adam", "learning_rate": 0.01, "weight_decay": 0.02},
        ("Adam", {"weight_decay": 0.02}),
        ("Adam", {"weight_decay": 0.02}),
    ),
    "adam, amsgrad": Case(
        {"kind": "adam", "learning_rate": 0.01, "amsgrad": True},
        ("Adam", {"amsgrad": True}),
        ("Adam", {"amsgrad": True}),
    ),
    "adamw": Case({"kind": "adamw", "learning_rate": 0.01}, ("AdamW", {}), ("AdamW", {})),
    "rmsprop": Case({"kind": "rmsprop"}, ("RMSprop", {}), ("RMSprop", {})),
    "rmsprop, centered, momentum": Case(
        {"kind": "rmsprop", "centered": True, "momentum": 0.9, "weight_decay": 0.01},
        ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.01}),
        ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.01}),
    ),
    "adagrad": Case({"kind": "adagrad"}, ("Adagrad", {}), ("Adagrad", {})),
    "adagrad, decaying": Case(
        {"kind": "adagrad", "rate_decay": 0.1, "weight_decay": 0.1},
        None,
        ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
    ),
    "adadelta": Case({"kind": "adadelta"}, ("Adadelta", {}), ("Adadelta", {})),
    "adamax": Case({"kind": "adamax"}, ("Adamax", {}), ("Adamax", {})),
    "nadam": Case({"kind": "nadam"}, ("Nadam", {}), ("NAdam", {})),
    "lion": Case(
        {"kind": "lion", "weight_decay": 0.1}, ("Lion", {"weight_decay": 0.1}), control={"beta_1": 0.91}
    ),
    "adafactor": Case({"kind": "adafactor"}, ("Adafactor", {}), ("Adafactor", {})),
    "adafactor, decay": Case(
        {"kind": "adafactor", "weight_decay": 3.0},
        ("Adafactor", {"weight_decay": 3.0}),
        ("Adafactor", {"weight_decay": 3.0}),
    ),
    "muon": Case({"kind": "muon"}, ("Muon", {}), ("Muon", {}), {"others": "AdamW", "narrow": False}),
    "muon, no nesterov": Case(
        {"kind": "muon", "nesterov": False},
        ("Muon", {"nesterov": False}),
        ("Muon", {"nesterov": False}),
        {"others": "AdamW", "narrow": False},
    ),
    "lamb": Case(
        {"kind": "lamb", "weight_decay": 0.1}, ("Lamb", {"weight_decay": 0.1}), control={"epsilon": 1e-6}
    ),
    "clip_norm": Case({"kind": "sgd", "learning_rate": 0.1, "clip_norm": 1.5}, ("SGD", {"clipnorm": 1.5})),
    "clip_value": Case(
        {"kind": "sgd", "learning_rate": 0.1, "clip_value": 0.4},
        ("SGD", {"clipvalue": 0.4}),
        ("SGD", {}),
        {"clip": ["clip_grad_value_", 0.4]},
        control={"clip_value": 0.41},
    ),
    "clip_global_norm": Case(
        {"kind": "sgd", "learning_rate": 0.1, "clip_global_norm": 2.0},
        ("SGD", {"global_clipnorm": 2.0}),
        ("SGD", {}),
        {"clip": ["clip_grad_norm_", 2.0]},
    ),
}
# Without a class to hold them against.
MORE = {
    "lamb, paper's decay": {"kind": "lamb", "weight_decay": 0.1, "weight_decay_mode": "update"},
    "muon, all switches": {
        "kind": "muon",
        "scaling": "none",
        "momentum_form": "mean",
        "norm_form": "add",
        "exclude": ["dense_2/*"],
        "fallback_rate_ratio": 0.3,
        "clip_global_norm": 1.0,
    },
    "masked": {
        "kind": "adamw",
        "learning_rate": 0.01,
        "weight_decay": 1.0,
        "decay_mask": ["*/bias", "conv*"],
        "ema": {"decay": 0.7, "overwrite_every": 4},
    },
    "averaged": {
        "kind": "rmsprop",
        "weight_decay": 0.3,
        "decay_mask": "matrices",
        "ema": {"decay": 0.7, "evaluate": False},
    },
}


def spec_of(
    optimizer: dict[str, Any], convention: str, units: tuple[int, int] = (5, 9), **fields: Any
) -> TrainSpec:
    """A model with a convolution, a tall and a wide matrix, a column and vectors; a changing rate."""
    layers = [
        {"kind": "conv2d", "filters": 3},
        {"kind": "flatten"},
        *({"kind": "dense", "units": n} for n in (*units, 1)),
    ]
    data = {
        **TINY,
        "model": {"input_shape": [3, 4, 2], "layers": layers},
        "loss": {"kind": "mean_squared_error"},
        "convention": convention,
        "optimizer": optimizer,
        "schedule": {"kind": "exponential", "decay_rate": 0.97},
        **fields,
    }
    return TrainSpec.parse(data).resolved()


def drawn(spec: TrainSpec, steps: int, draw: int) -> Arrays:
    """An initial state with random weights, and gradients of each step; some are zero."""
    random = np.random.default_rng(draw)
    arrays: Arrays = dict(initial_state(spec))
    for name, parameter in parameter_specs(spec).items():
        arrays[name] = random.normal(size=parameter.shape)
        for step in range(steps):
            gradient = random.normal(size=parameter.shape) * 10.0 ** random.integers(-2, 2)
            gradient[random.random(parameter.shape) < 0.1] = 0
            arrays[f"{step}/{name}"] = gradient
    # A parameter that gets no gradient at first.
    arrays["0/parameters/dense_2/kernel"] = np.zeros_like(arrays["0/parameters/dense_2/kernel"])
    return arrays


def by_numpy(spec: TrainSpec, arrays: Arrays, steps: int) -> Arrays:
    """Weights after each step, and slots at the end, by the reference."""
    rates, results = reference.StepScalars(spec), {}
    weights = {name: arrays[name] for name in parameter_specs(spec)}
    slots: dict[str, Arrays] = {name: {} for name in weights}
    for key, value in arrays.items():
        head, _, rest = key.partition("/")
        if head == "slots":
            slot, _, below = rest.partition("/")
            slots[f"parameters/{below}"][slot] = value
    for step in range(steps):
        gradients = {name: arrays[f"{step}/{name}"] for name in weights}
        for name, gradient in reference.clip(spec.optimizer, gradients).items():
            weights[name], slots[name] = reference.update(
                spec.optimizer,
                rates.scalars(step),
                weights[name],
                gradient,
                slots[name],
                name.removeprefix("parameters/"),
            )
            results[f"{step}/{name}"] = weights[name]
    for name, kept in slots.items():
        for slot, value in kept.items():
            results[f"slots/{slot}/{name.removeprefix('parameters/')}"] = value
    return results


def worst(ours: Arrays, theirs: Arrays) -> float:
    """Largest deviation over the weights of all steps, and the slots."""
    names = [name for name in theirs if name[0].isdigit() or name.startswith("slots/")]
    assert len(names) > 20
    assert {n for n in ours if n.startswith("slots/")} >= {n for n in names if n.startswith("slots/")}
    return max(deviation(ours[name], theirs[name]) for name in names)


@pytest.mark.sweep
@pytest.mark.parametrize("convention", ["keras", "torch"])
@pytest.mark.parametrize("case", [*CASES, *MORE])
@given(units=st.tuples(st.integers(1, 7), st.integers(1, 7)), draw=st.integers(0, 2**32 - 1))
@FEW
def test_tensorflow_pytorch_and_numpy_agree(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    case: str,
    convention: str,
    units: tuple[int, int],
    draw: int,
) -> None:
    optimizer = CASES[case].ours if case in CASES else MORE[case]
    spec = spec_of(optimizer, convention, units)
    arrays = drawn(spec, STEPS, draw)
    expected = by_numpy(spec, arrays, STEPS)
    results = both(peers, "optimizers:steps", {"spec": spec.to_dict(), "steps": STEPS}, arrays)
    for result in results:
        found = worst(result, expected)
        assert found <= LIMIT
        vocabulary.saw("optimizer", spec.optimizer.kind, found, "NumPy, TensorFlow, PyTorch")
    assert max(deviation(results[0][n], results[1][n]) for n in results[0]) <= LIMIT


@pytest.mark.sweep
@pytest.mark.parametrize("case", [*CASES, *MORE])
def test_float32_runs_stay_in_float32(peers: dict[str, Peer], case: str) -> None:
    optimizer = CASES[case].ours if case in CASES else MORE[case]
    wide, narrow = (spec_of(optimizer, "torch", precision=p) for p in ("float64", "float32"))
    arrays = {n: v.astype(np.float32) for n, v in drawn(wide, STEPS, 5).items() if n != "step"}
    results = both(peers, "optimizers:steps", {"spec": narrow.to_dict(), "steps": STEPS}, arrays)
    expected = by_numpy(narrow, arrays, STEPS)
    for result in results:
        assert all(v.dtype == np.float32 for n, v in result.items() if n != "step")
        assert worst(result, expected) < 1e-3


def of_stock(peers: dict[str, Peer], case: Case, convention: str, spec: TrainSpec, arrays: Arrays) -> Arrays:
    """What the framework's own class makes of the same gradients and learning rates."""
    name, options = (case.keras if convention == "keras" else case.torch) or ("", {})
    rates = [reference.learning_rate(spec, step) for step in range(STOCK_STEPS)]
    facts = {"name": name, "options": options, "rates": rates}
    if convention == "torch":
        facts |= case.more
    return peers["tensorflow" if convention == "keras" else "torch"]("optimizers:stock", facts, arrays)


STOCK = [
    # Of an optimizer's variants the first is tried at once.
    pytest.param(name, c, marks=pytest.mark.exhaustive if "," in name else ())
    for name, case in CASES.items()
    for c in ("keras", "torch")
    if getattr(case, c) is not None
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "convention"), STOCK)
def test_a_convention_is_the_frameworks_own_class(
    peers: dict[str, Peer], vocabulary: Vocabulary, name: str, convention: str
) -> None:
    """Keras's class against our PyTorch side, PyTorch's against our TensorFlow side; 30 steps."""
    case = CASES[name]
    spec = spec_of(case.ours, convention)
    arrays = drawn(spec, STOCK_STEPS, 7)
    expected = of_stock(peers, case, convention, spec, arrays)
    if "learning_rate" not in case.ours:
        assert expected.pop("learning_rate") == pytest.approx(spec.optimizer.learning_rate, rel=1e-7)
    peer = peers["torch" if convention == "keras" else "tensorflow"]
    ours = peer("optimizers:steps", {"spec": spec.to_dict(), "steps": STOCK_STEPS}, arrays)
    found = worst(ours, expected)
    assert found <= LIMIT
    vocabulary.saw("optimizer", spec.optimizer.kind, found, REFEREES[convention])

    # The control: the other convention, or where that is the same, a changed field.
    other = "torch" if convention == "keras" else "keras"
    different = spec_of({**case.ours, **(case.control or {"convention": other})}, convention)
    control = by_numpy(different, drawn(different, STOCK_STEPS, 7), STOCK_STEPS)
    weights = {n: v for n, v in control.items() if n[0].isdigit()}
    assert max(deviation(v, expected[n]) for n, v in weights.items()) > 1e-9


def test_muon_of_pytorch_rounds_to_bfloat16_and_ours_does_not(peers: dict[str, Peer]) -> None:
    """torch.optim.Muon as it comes: the only difference left is its bfloat16, of 8 bits."""
    case = CASES["muon"]
    spec = spec_of(case.ours, "torch")
    arrays = drawn(spec, STOCK_STEPS, 7)
    rounded = of_stock(peers, Case(case.ours, None, case.torch, {"others": "AdamW"}), "torch", spec, arrays)
    ours = by_numpy(spec, arrays, STOCK_STEPS)
    moved = np.abs(ours["29/parameters/dense_1/kernel"] - arrays["parameters/dense_1/kernel"]).max()
    apart = np.abs(ours["29/parameters/dense_1/kernel"] - rounded["29/parameters/dense_1/kernel"]).max()
    assert 1e-6 < apart / moved < 0.05
    assert deviation(ours["29/parameters/dense_1/bias"], rounded["29/parameters/dense_1/bias"]) <= LIMIT


@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_averages_and_masks_are_the_frameworks_own(peers: dict[str, Peer], convention: str) -> None:
    """Keras: use_ema and exclude_from_weight_decay. PyTorch: AveragedModel and parameter groups."""
    overwrite = {"overwrite_every": 4} if convention == "keras" else {}
    optimizer = {
        "kind": "adamw",
        "learning_rate": 0.01,
        "weight_decay": 0.5,
        "decay_mask": ["*/bias"],
        "ema": {"decay": 0.9, **overwrite},
    }
    spec = spec_of(optimizer, convention)
    arrays = drawn(spec, STOCK_STEPS, 3)
    biases = [name for name in parameter_specs(spec) if name.endswith("/bias")]
    keras = {"weight_decay": 0.5, "use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 4}
    case = Case(
        optimizer, ("AdamW", keras), ("AdamW", {"weight_decay": 0.5}), {"average": 0.9, "no_decay": biases}
    )
    rates = [reference.learning_rate(spec, step) for step in range(STOCK_STEPS)]
    name, options = (case.keras if convention == "keras" else case.torch) or ("", {})
    facts = {"name": name, "options": options, "rates": rates, "no_decay": biases, **case.more}
    peer, other = (
        peers[f] for f in (("tensorflow", "torch") if convention == "keras" else ("torch", "tensorflow"))
    )
    expected = peer("optimizers:stock", facts, arrays)
    ours = other("optimizers:steps", {"spec": spec.to_dict(), "steps": STOCK_STEPS}, arrays)
    assert worst(ours, expected) <= LIMIT
    for parameter in parameter_specs(spec):
        average = expected[f"average/{parameter}"]
        assert deviation(ours[f"slots/average/{parameter.removeprefix('parameters/')}"], average) <= LIMIT
        assert deviation(ours[f"evaluated/{parameter}"], average) <= LIMIT
    for wrong in ({"decay_mask": "all"}, {"ema": {"decay": 0.91, **overwrite}}):
        control = by_numpy(spec_of({**optimizer, **wrong}, convention), arrays, STOCK_STEPS)
        pairs = [(control[n], ours[n]) for n in control]
        assert max(deviation(*pair) for pair in pairs) > 1e-6


@pytest.mark.parametrize("evaluate", [False, True])
def test_an_evaluation_that_fails_leaves_the_weights_as_they_were(
    evaluate: bool, peers: dict[str, Peer]
) -> None:
    averaged = MORE["averaged"]
    spec = spec_of({**averaged, "ema": {**averaged["ema"], "evaluate": evaluate}}, "torch")
    arrays = drawn(spec, STEPS, 1)
    for result in both(peers, "optimizers:steps", {"spec": spec.to_dict(), "steps": STEPS}, arrays):
        for name in parameter_specs(spec):
            assert (result[f"left/{name}"] == result[name]).all()
            assert (result[f"evaluated/{name}"] == result[name]).all() != evaluate


def test_slots_have_their_own_shapes_and_values() -> None:
    shapes = lambda spec: {  # noqa: E731
        name.removeprefix("slots/"): value.shape
        for name, value in initial_state(spec).items()
        if name.startswith("slots/")
    }
    keras, torch_ = (shapes(spec_of({"kind": "adafactor"}, c)) for c in ("keras", "torch"))
    assert keras["row_moment/conv2d/kernel"] == (3, 3, 2)
    assert keras["column_moment/conv2d/kernel"] == (3, 3, 3)
    assert torch_["row_moment/conv2d/kernel"] == torch_["column_moment/conv2d/kernel"] == (3, 2, 3)
    assert keras["second_moment/conv2d/bias"] == (3,) and "row_moment/conv2d/bias" not in keras
    muon = shapes(spec_of({"kind": "muon"}, "keras"))
    assert "momentum_buffer/dense_1/kernel" in muon and "second_moment/dense_1/kernel" not in muon
    assert "second_moment/conv2d/kernel" in muon and "momentum_buffer/conv2d/kernel" not in muon
    state = initial_state(spec_of({"kind": "adagrad"}, "keras"))
    assert (state["slots/accumulator/dense_1/bias"] == 0.1).all()


WRONG = {
    "two clippings": ({"clip_norm": 1.0, "clip_value": 1.0}, "clip_norm and clip_value"),
    "an average for ever": ({"ema": {"decay": 1.0}}, "less than 1"),
    "a coupled Muon": ({"kind": "muon", "weight_decay_mode": "coupled"}, "decoupled"),
    "an unknown place": ({"kind": "rmsprop", "epsilon_place": "outside"}, "in_root"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case: str) -> None:
    fields, words = WRONG[case]
    with pytest.raises(SpecError) as error:
        spec_of({"kind": "sgd", "learning_rate": 0.1, **fields}, "keras")
    assert words in one_line(error.value)


_L2 = "loss={kind: softmax_cross_entropy, l2: 0.01, l1: 0.001}"
RUNS = {
    "adafactor": (
        "digits_cnn",
        "optimizer={kind: adafactor, learning_rate: 0.01, weight_decay: 0.1}",
        "convention=torch",
    ),
    "muon, l1, l2": ("digits_mlp", "optimizer={kind: muon, learning_rate: 0.01, clip_norm: 0.1}", _L2),
    "lamb, averaged": (
        "digits_mlp",
        "optimizer={kind: lamb, learning_rate: 0.01, weight_decay: 0.1, decay_mask: matrices, ema: {decay: 0.9}}",
    ),
    "lion, overwritten": (
        "digits_mlp",
        "optimizer={kind: lion, clip_value: 0.001, ema: {decay: 0.9, overwrite_every: 7}}",
        "convention=torch",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_a_run_means_the_same_on_every_placement(run_cache: RunCache, run: str) -> None:
    """Rules that look at whole tensors, under FSDP2's shards too."""
    recipe, *overrides = RUNS[run]
    spec = small(recipe, "steps=46", *overrides)
    placements = [torch("single", 1), tensorflow(2), torch("ddp", 2), torch("fsdp2", 2)]
    for placement in placements:
        run_cache.begin(spec, placement)
    first, *candidates = [run_cache.record(spec, placement) for placement in placements]
    for candidate in candidates:
        comparison = compare(first, candidate, proof_budget(first))
        assert comparison.verdict == "parity", f"{candidate.label}: {comparison.reason}"


def test_penalties_are_counted_once(run_cache: RunCache) -> None:
    """The first loss with penalties is the first one without, and the penalty of the initial weights."""
    plain, penalized = (small("digits_mlp", "steps=2", *more) for more in ((), (_L2,)))
    for placement in (tensorflow(2), torch("ddp", 2), torch("fsdp2", 2)):
        before, after = (run_cache.record(spec, placement) for spec in (plain, penalized))
        kernels = [v for n, v in after.state("initial").items() if n.endswith("/kernel") and n[0] == "p"]
        penalty = sum(0.001 * np.abs(w).sum() + 0.01 * (w**2).sum() for w in kernels)
        count = after.columns["count"][0]
        expected = before.columns["loss_sum"][0] + count * penalty
        assert after.columns["loss_sum"][0] == pytest.approx(expected, rel=1e-14)
        gradients = [record.state("first_gradients") for record in (before, after)]
        name = "parameters/dense_1/kernel"
        weight = after.state("initial")[name]
        step = gradients[1][name] - gradients[0][name]
        assert step == pytest.approx(0.001 * np.sign(weight) + 0.02 * weight, abs=1e-15)
        bias = "parameters/dense_1/bias"
        assert (gradients[0][bias] == gradients[1][bias]).all()
        # Evaluated on the weights after the two steps.
        assert after.summary is not None and before.summary is not None
        assert after.summary.eval_loss_sum - before.summary.eval_loss_sum > 100 * penalty


def test_evaluation_takes_the_average(run_cache: RunCache) -> None:
    """An average that forgets at once is the weights; a slow one is not."""
    for placement in (tensorflow(2), torch("fsdp2", 2)):
        losses = []
        for ema in ("null", "{decay: 0.0}", "{decay: 0.9}", "{decay: 0.9, evaluate: false}"):
            record = run_cache.record(small("digits_mlp", "steps=20", f"optimizer.ema={ema}"), placement)
            assert record.summary is not None
            losses.append(record.summary.eval_loss_sum)
        assert losses[0] == losses[1] == losses[3]
        assert abs(losses[2] / losses[0] - 1) > 1e-3
