"""How far rounding alone can take one step of a recorded script, known before anything was measured.

Two levels of each quantity. What is within the first, rounding explains. What is beyond the second, rounding cannot make.
Between them nothing is decided. All follow from the precision and the sizes of the model:

    smooth  4 sqrt(L n) eps      of losses, buffers and gradients of one step, relative to their norms
    gross   4 sqrt(eps)          half of the digits

`smooth`: an inner product of n terms has an error of about sqrt(n) u, u = eps / 2, where roundings are independent (Higham and Mary, A
new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 2019), and L layers one after the other add L such
errors in squares. The factor of 8 u is left for how the model and its backward pass amplify them. L: the weights of two and
more axes. n: the terms of the longest product, as far as the shapes of weights tell.

`gross`: where ReLU or max pooling has a kink, rounding flips a unit, and its gradient is there or not. About eps of the units are
that close to zero. As the contributions of units are independent, the norm of what flips is about sqrt(eps) of the gradient's. A net
with few units has few flips, and each is larger: a single one may be `SINGLE_FLIP` of a small batch's gradient.

Of gradients, the smooth part is relative to all gradients together: a gradient that is zero but for rounding (the bias before a batch norm)
is as large as its terms round. Of a loss, the terms are logits, of order 1, and what the weights' rounding does to it: |g| |w| / sqrt(n).

Updates and slots are elementwise, given equal gradients, slots and weights, so no product takes part: a few roundings. But a framework that
takes 1 - beta through float32 has the error eps / (1 - beta) there: 1e-3 of beta's complement costs 1,000 units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RecordError
from parity.common.record import RunRecord
from parity.common.record.files import read_json
from parity.common.record.fits import ELEMENTWISE_ULPS
from parity.common.record.followed import Measure, read_measures
from parity.common.record.script import OUTLINE
from parity.common.spec import ScriptInfo

Curve = NDArray[np.float64]

# Largest relative deviation allowed in float64, where only rounding may differ.
FLOAT64 = {
    "loss_sum": 1e-12,  # the law: hundreds of steps of rounding stay under this
    "gradient_norm": 1e-10,  # a norm near a minimum is a small difference of larger terms
    "parameter_norm": 1e-12,  # sums of squares do not cancel
    "update_norm": 1e-10,  # follows the gradient
    "first_gradients": 1e-12,  # one step: no error has been fed back yet
    "evaluation": 1e-10,  # loss of the final state
    "final": 1e-10,  # per tensor, relative to its largest element
}

# A cross-entropy is a logarithm of a sum less a logit, numbers of order 1 and more, and its gradient a probability less 1: where
# a net is sure, little is left of them, and no float64 says it more exactly than some units in the last place of 1.
_CROSS_ENTROPIES = ("softmax_cross_entropy", "binary_cross_entropy", "kl_divergence")
_ULPS_OF_LOGITS = 16.0

# Units in the last place of the type that products round to. Of float8 operands, e4m3.
_EPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16_mixed": 2.0**-7,
    "float16_mixed": 2.0**-10,
    "float8_mixed": 2.0**-3,
}
# On a GPU, products of float32 may be of operands rounded to TF32.
_TF32 = 2.0**-10
# How many times as far as a rounded constant is off what is made with it may be off: as products, see above, and twice that where terms cancel, as in
# scale * x + offset.
_THROUGH_A_CONSTANT = 16.0
# By how much of a loss the constants of a function, which is float32, move it.
_BY_A_CONSTANT = 16 * _EPS["float32"]
IN_FUNCTIONS = "constants in functions (GELU, LeakyReLU, attention, resizing, Rescaling, Normalization)"
# Of a model whose weights were not recorded.
_LAYERS, _TERMS = 64, 4096
SINGLE_FLIP = 0.05
ELEMENTWISE_GROSS_ULPS = 4 * ELEMENTWISE_ULPS
# Of the highest rate of a schedule that Keras computes in float32, in a few operations.
SCHEDULE_ULPS = 4.0
# In the steps after the first, what rounding has made grows: by no more than this a step, from the gross level, which it
# does not reach at the first.
GROWTH = 4.0
# What is so many times beyond a limit of float64 at once has not grown.
GROWN = 1000.0
# Beyond this a limit says nothing.
_LARGEST = 0.5


def float64_curves(record: RunRecord) -> dict[str, Curve]:
    """What each curve of a run may deviate by in float64, (steps,) by its column."""
    columns = record.columns
    found = {
        name: float64_loss(record, name, record.loss) for name in ("loss_sum", "gradient_norm", "update_norm")
    }
    # An update is added to parameters, whose rounding is all that is left of one at a rate near zero.
    lost = _at_least(0.0, _EPS["float64"], columns["update_norm"] / columns["parameter_norm"])
    found["update_norm"] = np.maximum(found["update_norm"], lost)
    found["parameter_norm"] = np.full(len(record.steps), FLOAT64["parameter_norm"])
    return found


def float64_loss(record: RunRecord, which: str, mean: Curve) -> Curve:
    """What mean losses may deviate by in float64, and what follows them. which: of `FLOAT64`."""
    spec = record.train_spec
    if spec is None or spec.loss.kind not in _CROSS_ENTROPIES:
        return np.full(mean.shape, FLOAT64[which])
    return _at_least(FLOAT64[which], _ULPS_OF_LOGITS * _EPS["float64"], np.abs(mean))


def _at_least(limit: float, absolute: float, values: Curve) -> Curve:
    """A limit, or what an absolute one is of some values, where that is more and known; 1 at most, since what is no number agrees with none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.minimum(absolute / values, 1.0)
    return np.fmax(limit, np.where(np.isfinite(values), relative, np.nan))


def grown_since(curves: Sequence[tuple[Curve, Curve]]) -> int:
    """The row from which curves of float64 may be outside by rounding, which has grown; the number of rows where they are nowhere.

    -1: one is by something else, or after too few steps.

    Args:
        curves: deviations (steps,) with their limits.
    """
    since = []
    for deviation, limit in curves:
        steps = np.minimum(np.arange(len(limit)), 60.0)
        grown = _EPS["float64"] * GROWTH**steps >= limit
        outside = np.flatnonzero(~(deviation <= limit))
        first = int(outside[0]) if len(outside) else len(limit)
        gently = deviation[first] <= GROWN * limit[first] if len(outside) else True
        since.append(first if gently and grown[: first + 1].any() else -1)
    return min(since, default=-1)


@dataclass(frozen=True)
class Rounding:
    """Of one pair of records. eps: of the products. proof: float64, which has the limits of the law. constants: relative, what rounded ones make
    of a step of float64; 0 where products are rounded, too.
    """

    eps: float
    proof: bool
    layers: int
    terms: int
    constants: float = 0.0

    @classmethod
    def of(cls, *records: RunRecord) -> Rounding:
        """For records of one precision; the coarser of them counts."""
        layers, terms, eps = 0, 0, 0.0
        for record in records:
            precision = record.run_info.precision
            own = _EPS[precision]
            on_gpu = any(
                "cuda" in device.lower() or "gpu" in device.lower() for device in record.header.devices
            )
            eps = max(eps, _TF32 if on_gpu and precision == "float32" else own)
            if record.has("initial"):
                torch = isinstance(record.run_info, ScriptInfo) and record.run_info.naming == "torch"
                shapes = [array.shape for array in record.state("initial").values() if array.ndim > 1]
                layers = max(layers, len(shapes))
                terms = max(
                    [terms, *(math.prod(s) // min(s[:2] if torch else s[-2:]) for s in shapes if min(s))]
                )
        return cls(eps, records[0].run_info.precision == "float64", layers or _LAYERS, terms or _TERMS)

    @property
    def in_float32(self) -> Rounding:
        """As of float32: of float64 where constants that are rounded to it keep two trainings apart."""
        return replace(self, eps=_EPS["float32"], proof=False)

    @property
    def smooth(self) -> float:
        """What rounding does where nothing has kinks, relative."""
        limit = FLOAT64["first_gradients"]
        # Of a low type, or a huge model, the formula would say nothing: what is farther off is undecided.
        products = min(4 * math.sqrt(self.layers * self.terms) * self.eps, self.gross / 8)
        return limit if self.proof else min(self.constants or products, products)

    @property
    def gross(self) -> float:
        """What rounding cannot do, relative."""
        return FLOAT64["first_gradients"] if self.proof else min(4 * math.sqrt(self.eps), _LARGEST)

    @property
    def gross_gradient(self) -> float:
        """What rounding cannot do to one gradient of a single step, relative to its norm."""
        return self.gross if self.proof else max(self.gross, SINGLE_FLIP)

    def loss(self, loss: Curve, gradient_norm: Curve, parameter_norm: Curve) -> tuple[Curve, Curve]:
        """(steps,) each: within and beyond which mean losses of single steps may differ, absolute.

        Norms that were not recorded (NaN) count as 0.
        """
        if self.proof:
            return (FLOAT64["loss_sum"] * np.abs(loss),) * 2
        through = np.nan_to_num(gradient_norm * parameter_norm, posinf=0.0) / math.sqrt(self.terms)
        within = self.smooth * (np.abs(loss) + through) + (self.constants or 8 * self.eps)
        return within, np.maximum(within, self.gross * np.abs(loss) + 8 * within)

    def first_steps(self, name: str, reference: RunRecord) -> Curve:
        """Return (steps,): beyond which a recorded curve cannot be rounding's; infinite where that is not known.

        `name`: of `CURVES`. Relative, as `column_deviation` has it; for trainings that begin alike and were not followed.
        """
        steps = np.arange(len(reference.steps)) + float(reference.steps[0] if len(reference.steps) else 0)
        level = np.full(len(steps), self.gross if name == "parameter_norm" else self.gross_gradient)
        if name == "loss_sum":
            loss = np.abs(reference.loss)
            norms = (reference.columns[column] for column in ("gradient_norm", "parameter_norm"))
            with np.errstate(divide="ignore", invalid="ignore"):
                level = np.nan_to_num(self.loss(loss, *norms)[1] / loss, nan=np.inf)
        grown = level * GROWTH ** np.minimum(steps, 60.0)
        # Of a low type even a doubled first loss is farther than this, and of later steps nothing is known.
        return np.where((grown <= _LARGEST) | (steps == 0), np.minimum(grown, _LARGEST), np.inf)


def float32_constants(*records: RunRecord) -> list[str]:
    """What a float64 script of Keras has taken through float32, which torch has not: 'momentum 0.9'.

    Keras makes tensors of Python's numbers, and these are float32. A number that float32 holds is not changed by it.
    """
    infos = [record.run_info for record in records]
    scripts = [info for info in infos if isinstance(info, ScriptInfo)]
    if len(scripts) != 2 or {info.framework for info in scripts} != {"tensorflow", "torch"}:
        return []
    if scripts[0].precision != "float64":
        return []
    found = []
    rates = [record.columns["learning_rate"] for record in records]
    known = np.isfinite(rates[0]) & np.isfinite(rates[1])
    if (rates[0] != rates[1])[known].any():
        found.append("the learning rate")
    for record, info in zip(records, scripts, strict=True):
        if info.framework == "tensorflow":
            found += [
                f"{name} {value:g}" for name, value in _settings(record) if float(np.float32(value)) != value
            ]
    return [*found, *([IN_FUNCTIONS] if functions_round(*records) else [])]


def functions_round(reference: RunRecord, candidate: RunRecord) -> bool:
    """Whether the first losses or gradients that are apart, of two float64 scripts of both frameworks, are so by what a constant makes that a
    function takes through float32: of a followed run at any step, as each begins alike.

    TensorFlow's GELU, LeakyReLU, resizing and Keras's attention do so, and Rescaling and Normalization with numbers that float32 does not hold. A model of
    other layers that are known has none of them; what a layer of the user's own calls nobody knows.
    """
    keras = [r for r in (reference, candidate) if getattr(r.run_info, "framework", "") == "tensorflow"]
    torch = [r for r in (reference, candidate) if getattr(r.run_info, "framework", "") == "torch"]
    if len(keras) != 1 or len(torch) != 1 or keras[0].run_info.precision != "float64":
        return False
    if not all(len(record.steps) and record.steps[0] == 0 for record in (reference, candidate)):
        return False
    if not _rounded_constants(outline_of(keras[0]), 1):
        return False
    law = FLOAT64["first_gradients"]
    first = next((apart for apart in _apart_from_alike(reference, candidate) if not apart <= law), 0.0)
    return law < first <= _BY_A_CONSTANT


def _apart_from_alike(reference: RunRecord, candidate: RunRecord) -> Iterator[float]:
    """By how much the loss, or where it agrees its gradients are apart at each step that begins alike, relative to their norm."""
    steps, rows, others = np.intersect1d(reference.steps, candidate.steps, return_indices=True)
    pairs = zip(reference.loss[rows].tolist(), candidate.loss[others].tolist(), strict=True)
    losses = [abs(a - b) / max(abs(a), abs(b), np.finfo(float).tiny) for a, b in pairs]
    law = FLOAT64["loss_sum"]
    measured: dict[int, list[Measure]] = {}
    for each in read_measures(candidate.folder):
        if each.stage == "gradients":
            measured.setdefault(each.step, []).append(each)
    if not measured:
        yield losses[0] if losses[0] > law else _first_gradients_apart(reference, candidate)
        return
    for step, loss in zip(steps.tolist(), losses, strict=True):
        here = measured.get(step, [])
        norm = math.hypot(*(row.reference for row in here)) or 1.0
        # Where the loss is apart, what its gradients are is another question.
        yield loss if loss > law else math.hypot(*(row.difference for row in here)) / norm


def _first_gradients_apart(reference: RunRecord, candidate: RunRecord) -> float:
    """By how much all first gradients are apart, relative to their norm; 0 where they have no tensors in common."""
    if not all(record.has("first_gradients") for record in (reference, candidate)):
        return 0.0
    ours, theirs = (record.state("first_gradients") for record in (reference, candidate))
    both = [
        name for name in ours if name in theirs and ours[name].shape == theirs[name].shape and name != "step"
    ]
    norm = math.hypot(*(float(np.linalg.norm(ours[name])) for name in both))
    apart = math.hypot(*(float(np.linalg.norm(np.subtract(ours[name], theirs[name]))) for name in both))
    return apart / norm if norm else 0.0


def of_constants(reference: RunRecord, candidate: RunRecord) -> Rounding:
    """What constants that functions take through float32 make of a step of float64, where `functions_round` says so: no more than float32 does."""
    rounding = Rounding.of(reference, candidate).in_float32
    keras = next(r for r in (reference, candidate) if getattr(r.run_info, "framework", "") == "tensorflow")
    # Of independent errors, one in each such layer, squares add up.
    off = math.hypot(*_rounded_constants(outline_of(keras), rounding.layers))
    return replace(rounding, constants=_THROUGH_A_CONSTANT * off)


def _rounded_constants(outline: Mapping[str, Any], unknown: int) -> list[float]:
    """By how much each constant that a Keras model may take through float32 is off, and so what its layer gives, relative.

    Args:
        unknown: how many there may be in code of a model's own, of which nothing is known.
    """
    unit = _EPS["float32"] / 2
    if "error" in outline or not outline:
        return [unit] * unknown
    layers = [*(outline.get("layers") or ()), *(outline.get("operations") or ())]
    # Code of the user's own: of the model, or of a layer around those that are known.
    known = {layer.get("path") for layer in layers}
    around = {str(tensor.get("layer", "")).rpartition("/")[0] for tensor in outline.get("tensors") or ()}
    own = not str(outline.get("type", "keras.")).startswith("keras.")
    found = [unit] * (unknown if own or around - known - {""} else 0)
    for layer in layers:
        kind, settings = layer.get("kind"), layer.get("settings") or {}
        function, slope = str(settings.get("function")), settings.get("negative_slope")
        if function == "leaky_relu" and isinstance(slope, float) and slope:
            # Where all that it is given is below zero; else by less.
            found.append(abs(float(np.float32(slope)) / slope - 1))
        elif (
            not kind
            or re.search("attention|resiz|upsampl", kind)
            or function in ("gelu", "leaky_relu")
            # A record without "rounded" is of an earlier recorder.
            or (kind in ("rescale", "standardize") and settings.get("rounded", True))
        ):
            found.append(unit)
    return [off for off in found if off]


def rounded_from_the_start(reference: RunRecord, candidate: RunRecord) -> bool:
    """Whether what TensorFlow takes through float32 may show in the first loss and its gradients: a function's, or what the first of several
    optimizers has updated.
    """
    constants = float32_constants(reference, candidate)
    return bool(constants) and (IN_FUNCTIONS in constants or has_several_optimizers(reference))


def has_several_optimizers(record: RunRecord) -> bool:
    """Whether a script has several optimizers: what a step computes after the first of them has gone through weights that this has updated."""
    return bool(outline_of(record).get("optimizers"))


def outline_of(record: RunRecord) -> dict[str, Any]:
    """What lies beside a record of its script's model, as it is written; nothing where that cannot be read."""
    path = record.folder / OUTLINE
    try:
        read = read_json(path) if path.exists() else {}
    except RecordError:
        return {}
    return read if isinstance(read, dict) else {}


def _settings(record: RunRecord) -> list[tuple[str, float]]:
    """The numbers that an optimizer is set to."""
    outline = outline_of(record)
    try:
        infos = [outline.get("optimizer") or {}, *(outline.get("optimizers") or ())]
        settings = [item for info in infos for item in (info.get("settings") or {}).items()]
    except AttributeError:
        return []
    found = [(name, float(value)) for name, value in settings if isinstance(value, float)]
    return [each for each in dict.fromkeys(found) if each[0] != "learning_rate"]
