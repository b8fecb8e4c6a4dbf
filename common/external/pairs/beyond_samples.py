"""What samples and weights do not show: both models with far larger inputs, where a limit is reached, and with weights in another order.

Units that are dead with the weights that the models begin with hide what stands before them, through a whole training.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.data.samples import are_whole
from parity.common.diagnosis import limits
from parity.common.external.lint.lint import Difference, said_of
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench, place_of
from parity.common.external.pairs.explain import DeviatingTensor, explained
from parity.common.external.pairs.points import NOWHERE
from parity.common.external.pairs.varied_weights import other_weights, scaled, shuffled, write_weights
from parity.common.external.process.pass_result import Arrays

# A clipped activation, such as a ReLU6, is reached so.
_FACTORS = (100.0, -100.0)
# Behind a norm, which makes larger inputs small again, it is reached by larger gains.
_GROWN = 4.0
# Four orders of ten open a gate that one weight holds closed; so of three all may miss it, and of ten hardly.
_ORDERS, _SECONDS = 10, 10.0


def differ_with_other_weights(bench: Bench) -> float:
    """Return how far the outputs of models that agree are apart once their weights are in another order; 0.0 where they never are.

    Where they are, the models keep these weights.

    Args:
        bench: both models, whose outputs agree.
    """
    began = time.monotonic()
    for seed in range(_ORDERS):
        if seed and time.monotonic() - began > _SECONDS:
            break
        change = partial(shuffled, seed=seed)
        try:
            with other_weights(bench, change) as changed, exact_constants(bench):
                apart = _deviation(bench) if changed else 0.0
        except ExternalModelError:
            break  # it needs weights of a kind, such as a matrix that can be inverted
        # Such a matrix may round more than one that was drawn for it, too.
        if np.isfinite(apart) and apart > limits.AMPLIFIED_BY_A_PASS:
            write_weights(bench, change)
            return apart
    return 0.0


def beyond_samples(bench: Bench, suspects: Sequence[Difference]) -> str:
    """Return in one line how the outputs of models that agree differ with larger inputs or weights, and by which settings; '' where they do not.

    Inputs that are whole numbers, such as tokens and masks, are what they are; without others nothing is tried.

    Args:
        bench: both models, whose outputs agree.
        suspects: differences of their settings.
    """
    for factor in _FACTORS:
        ours, theirs = (_larger(inputs, factor) for inputs in bench.inputs)
        if not (ours and theirs):
            continue
        larger = replace(bench, inputs=(bench.inputs[0] | ours, bench.inputs[1] | theirs))
        larger.points = bench.points
        if line := _differing(larger, suspects):
            sign = "" if factor > 0 else " and of the other sign"
            return f"not shown by these samples: with inputs {abs(factor):g} times as large{sign}, {line}"
    with other_weights(bench, partial(scaled, factor=_GROWN)) as changed:
        line = _differing(bench, suspects) if changed else ""
    return f"not shown by these weights: with weights {_GROWN:g} times as large, {line}" if line else ""


def _larger(inputs: Arrays, factor: float) -> Arrays:
    """Those inputs (batch, ...) that are measured, and not counted."""
    measured = {n: array for n, array in inputs.items() if array.dtype.kind == "f" and not are_whole(array)}
    return {name: np.asarray(array * factor, array.dtype) for name, array in measured.items()}


def _differing(bench: Bench, suspects: Sequence[Difference]) -> str:
    """How the outputs differ now; '' where they agree, or a model takes no such numbers."""
    try:
        with exact_constants(bench):
            return _told(bench, [one for one in suspects if one.changes == "forward"])
    except ExternalModelError:
        return ""


def _told(bench: Bench, suspects: Sequence[Difference]) -> str:
    deviation = _deviation(bench)
    if deviation <= limits.LIVE_FLOAT64 or not np.isfinite(deviation):
        return ""
    found = explained(DeviatingTensor(bench, NOWHERE, suspects, lambda: _deviation(bench), deviation))
    if found:
        names = {each.explanation.text for each in found}
        return f"the outputs differ by {deviation:.2g}: {'; '.join(said_of([s for s in suspects if s.text in names]))}"
    rows = bench.passes(bench.reference(training=False), bench.torch_pass(training=False), training=False)
    first = next((place_of(row) for row in rows if not row.agrees), "")
    return f"the outputs differ by {deviation:.2g}, and the first layer that does is {first}"


def _deviation(bench: Bench) -> float:
    """How far the outputs in inference are apart now; nothing else is read from the models."""
    ours, theirs = (side.forward(inputs, training=False, taps=False) for side, _, inputs in bench.sides)
    return max((row.deviation for row in bench.outputs(ours, theirs)), default=0.0)
