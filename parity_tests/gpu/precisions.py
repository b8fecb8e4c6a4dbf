"""Rows of what rounds more than float64: float32, TF32, the mixed precisions, and torch's fast kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from parity.common.parity.deviation import curve_deviation, state_deviations
from parity.common.recipes.models.sequence import gpt2_model
from parity.common.record import RunRecord
from parity.common.spec import TrainSpec
from parity.common.state.canonical import tensor_of
from parity.common.state.zero_gradient import zero_gradient_directions
from parity_tests.gpu.bench import Bench
from parity_tests.gpu.law import STEPS, judged
from parity_tests.gpu.rows import Measured, NotPossibleError, row

# Largest deviation of a first loss from that of float64: some units in the last place of what operands are rounded to.
# float32 alone makes 1e-7 of it, TF32 1e-4 and more, so that TF32 where the spec has none is seen.
FIRST_LOSS = {"float32": 1e-5, "tf32": 1e-2}
# Of a loss curve of 14 steps, where the net is smooth. CPUs make 2e-7 of it in float32; a wrong mask, gate or scale 1e-2
# and more at once. Of the CNN it is reported: once a ReLU near zero has another sign, the curves part by 1e-3.
CURVE = {"float32": 1e-4, "tf32": 2e-2, "float8_mixed": 2e-1}
# Of the first step's gradients, where the net is smooth; TF32 would make 1e-3 of them.
GRADIENTS = {"float32": 1e-4, "tf32": 1e-1}
_SMOOTH = "digits_transformer"


class Apart(NamedTuple):
    """Largest deviations of a run from the device's run in float64; but for gradients that are zero but for rounding."""

    first_loss: float
    curve: float
    gradients: float
    run: RunRecord


def against_float64(bench: Bench, spec: TrainSpec) -> Apart:
    """How far a spec's run is from the same in float64, both on the device."""
    exact = spec.model_copy(update={"precision": "float64", "tf32": False, "loss_scale": None})
    reference, run = bench.candidate(exact.resolved()), bench.candidate(spec)
    losses = curve_deviation(reference.loss, run.loss)
    apart = state_deviations(reference.state("first_gradients"), run.state("first_gradients"))
    noise = zero_gradient_directions(spec)
    worst = max(value for name, value in apart.items() if tensor_of(name) not in noise)
    return Apart(float(losses[0]), float(losses.max()), worst, run)


def _float32(bench: Bench, kind: str, *more: str) -> Measured:
    shown, why = [], []
    for recipe in ("digits_cnn", _SMOOTH):
        found = against_float64(bench, bench.spec(recipe, STEPS, "precision=float32", *more))
        shown.append(
            f"{recipe} first loss {found.first_loss:.1e}, gradients {found.gradients:.1e}, loss {found.curve:.1e}"
        )
        smooth = recipe != _SMOOTH or (found.curve <= CURVE[kind] and found.gradients <= GRADIENTS[kind])
        if not (found.first_loss <= FIRST_LOSS[kind] and smooth):
            why.append(f"{recipe} deviates by more than {kind} rounds")
    return Measured("; ".join(shown), "; ".join(why))


def _limits(kind: str) -> str:
    return (
        f"first loss {FIRST_LOSS[kind]:g}; transformer's gradients {GRADIENTS[kind]:g}, loss {CURVE[kind]:g}"
    )


@row(
    "float32",
    "digits_cnn and digits_transformer in float32 without TF32, device, against float64, device",
    _limits("float32"),
)
def float32(bench: Bench) -> Measured:
    return _float32(bench, "float32")


@row("tf32", "the same in float32 with TF32 (tf32=true in the spec)", _limits("tf32"))
def tf32(bench: Bench) -> Measured:
    if bench.capability < (8, 0):
        raise NotPossibleError(
            f"compute capability {_dotted(bench.capability)} has no TF32, 8.0 is the first"
        )
    return _float32(bench, "tf32", "tf32=true")


_FLOOR = "8 x noise floor of four permuted runs of each"


@row("bfloat16_mixed", "digits_transformer in bfloat16_mixed, torch single: CPU against device", _FLOOR)
def bfloat16_mixed(bench: Bench) -> Measured:
    if bench.on_gpu and bench.capability < (8, 0):
        raise NotPossibleError(
            f"compute capability {_dotted(bench.capability)} has no bfloat16, 8.0 is the first"
        )
    spec = bench.spec("digits_transformer", STEPS, "precision=bfloat16_mixed")
    return judged({"": bench.within_floor(spec)})


@row(
    "float16_mixed", "digits_mlp in float16_mixed with loss scaling, torch single: CPU against device", _FLOOR
)
def float16_mixed(bench: Bench) -> Measured:
    # It begins with a scale that is too large, and tries larger ones again and again.
    scale = "loss_scale={initial: 131072.0, growth_interval: 3}"
    spec = bench.spec("digits_mlp", STEPS, "precision=float16_mixed", scale)
    return judged({"": bench.within_floor(spec)})


@row(
    "float8_mixed",
    "digits_transformer in float8_mixed, device, against float64, device; no CPU has its kernels",
    f"loss {CURVE['float8_mixed']:g}, and it falls",
)
def float8_mixed(bench: Bench) -> Measured:
    if bench.capability < (8, 9):
        here = f"compute capability {_dotted(bench.capability)}"
        raise NotPossibleError(f"{here} has no float8 products, 8.9 is the first (Ada, Hopper)")
    found = against_float64(bench, bench.spec(_SMOOTH, STEPS, "precision=float8_mixed"))
    first, *_, last = found.run.loss
    why = [] if found.curve <= CURVE["float8_mixed"] else [f"deviates by {found.curve:.2g}"]
    why += [] if last < first else ["the loss does not fall"]
    return Measured(f"loss {found.curve:.1e}, from {first:.3f} to {last:.3f}", "; ".join(why))


def _dotted(capability: Sequence[int]) -> str:
    return ".".join(map(str, capability))


def small_gpt2(bench: Bench, precision: str) -> TrainSpec:
    """gpt2:tiny without dropout: with dropout the trainer writes the weights of attention out, which no fast kernel does."""
    spec = bench.spec("gpt2:tiny", STEPS, f"precision={precision}")
    model = gpt2_model(vocabulary=61, positions=16, tokens=12, width=24, depth=2, heads=3, dropout=0.0)
    return spec.model_copy(update={"model": model}).resolved()


def _fast(bench: Bench, spec: TrainSpec, which: str) -> Measured:
    found = against_float64(bench, spec)
    kernels = bench.ask("kernels")[which]
    why = [] if found.curve <= CURVE["float32"] else [f"deviates by {found.curve:.2g}"]
    why += [] if kernels else ["no fast kernel ran"]
    return Measured(
        f"loss {found.curve:.1e}, gradients {found.gradients:.1e}; {', '.join(kernels)}", "; ".join(why)
    )


_FAST = f"loss {CURVE['float32']:g}, and a fast kernel ran"


@row(
    "attention",
    "gpt2:tiny without dropout in float32 through scaled_dot_product_attention, device, against float64, device",
    _FAST,
)
def attention(bench: Bench) -> Measured:
    return _fast(bench, small_gpt2(bench, "float32"), "attention")


@row(
    "lstm",
    "lstm_classifier:tiny in float32 through torch's LSTM kernel, device, against float64, device",
    _FAST,
)
def lstm(bench: Bench) -> Measured:
    return _fast(bench, bench.spec("lstm_classifier:tiny", STEPS, "precision=float32"), "lstm")


ROWS = (float32, tf32, bfloat16_mixed, float16_mixed, float8_mixed, attention, lstm)
