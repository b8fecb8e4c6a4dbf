"""Tables of which a batch reads some rows: stock Keras hands its optimizer gradients of these, one for each time that a row is read."""

from __future__ import annotations

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.target import Target
from parity.common.spec.optimizers import OptimizerBase


def stock_rows(bench: Bench, optimizer: Target | OptimizerBase) -> Finding | None:
    """Return that stock Keras trains a table otherwise than by its whole gradient, as torch does and pairs do; None where it does not.

    Args:
        bench: both models.
        optimizer: the user's own of Keras, or ours, in whose place Keras's of that name is tried.
    """
    if isinstance(optimizer, OptimizerBase):
        name = type(optimizer).__name__
        optimizer = Target.of(f"keras.optimizers:{name}", {"learning_rate": 0.01})
    else:
        name = str(optimizer)
    before = bench.keras.read()
    try:
        with exact_constants(bench):
            bench.reference(training=True)  # for a pass with gradients
            found = bench.keras.by_rows(optimizer)
    except ExternalModelError:
        return None  # Keras has none of that name
    if not found:
        return None
    by_rows, whole = ({n: np.subtract(v, before[n]) for n, v in each.items()} for each in found)
    apart = {table: tensor_deviation(by_rows[table], whole[table]) for table in whole}
    off = {table: deviation for table, deviation in apart.items() if deviation > limits.LIVE_FLOAT64}
    if not off:
        return None
    text = (
        f"stock Keras trains {', '.join(off)} otherwise, with {name}: of a row that a batch reads more than once it takes the square"
        " or the size of each gradient by itself, where torch adds them up first"
    )
    evidence = f"by experiment: the first update is off by {max(off.values()):.2g}"
    why = Explanation("updates:rows", text, "confirmed", "in Keras: DenseAdam of the FAQ", evidence)
    tensors = tuple(
        TensorComparison(f"update/{table}", None, deviation, limits.LIVE_FLOAT64)
        for table, deviation in off.items()
    )
    return Finding(0, "update", tensors[0].name, (), tensors, (), explanation=why)


def by_whole_gradients(found: Finding) -> str:
    """The same in one line beside a parity, where both were trained by our optimizer."""
    assert found.explanation is not None
    why = found.explanation
    return f"{why.text}; {why.evidence}. Compared as torch has it; {why.fix}"
