"""Tables that the code of both sides makes for itself, and not alike: what is copied hides that."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.search import finding_of
from parity.common.external.process.pass_result import Array
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.mapping import Pair


def own_tables(bench: Bench) -> Iterator[Finding]:
    """Yield tensors that neither side trains and that each side's code makes of the same numbers at any seed, but other ones than the other side.

    Equal weights hide it, since Keras's are copied. What is zeros or ones may be there to be loaded, and statistics of a batch norm are
    no tables. torch's model is left as it was.
    """
    pairs = [pair for pair in bench.mapping.tensors if _is_of_tables(bench, pair)]
    if not pairs:
        return
    try:
        ours, theirs = (side.fixed(inputs) for side, _, inputs in bench.sides)
    except ExternalModelError:  # built again it is no model
        return
    for pair in pairs:
        if not (ours.keys() >= {*pair.keras} and theirs.keys() >= {*pair.torch}):
            continue
        due = pair.parsed.to_torch([ours[name] for name in pair.keras], len(pair.torch))
        own = dict(zip(pair.torch, (theirs[name] for name in pair.torch), strict=True))
        values = [*due, *own.values()]
        if any(map(_is_blank, values)) or [a.shape for a in due] != [a.shape for a in own.values()]:
            continue
        far = max(tensor_deviation(a, b) for a, b in zip(due, own.values(), strict=True))
        if far > limits.ROUNDED_CONSTANT and (moved := _moved(bench, own)) > limits.LIVE_FLOAT64:
            yield _finding(pair, far, moved)


def _is_of_tables(bench: Bench, pair: Pair) -> bool:
    keras, torch = bench.outlines
    kinds = {layer.path: layer.kind for layer in keras.layers}
    names = {*pair.keras}, {*pair.torch}
    infos = [
        info
        for side, of in zip((keras, torch), names, strict=True)
        for info in side.tensors
        if info.name in of
    ]
    return (
        all(names)
        and not pair.is_ambiguous
        and not any(info.trainable for info in infos)
        and all(info.dtype.startswith(("float", "bfloat")) for info in infos)
        and not any(kinds.get(info.layer) == "batch_norm" for info in infos)
    )


def _is_blank(values: Array) -> bool:
    """Whether values are all zeros, or all ones."""
    return values.size == 0 or bool(np.all(values == values.flat[0]) and values.flat[0] in (0, 1))


def _moved(bench: Bench, own: dict[str, Array]) -> float:
    """How far torch's outputs are moved by tables of its own instead of Keras's."""
    kept, inputs = bench.torch.read(), bench.inputs[1]
    before = bench.torch.forward(inputs, taps=False).outputs
    bench.torch.write(own)
    after = bench.torch.forward(inputs, taps=False).outputs
    bench.torch.write({name: kept[name] for name in own})
    return max((tensor_deviation(before[name], after[name]) for name in before if name in after), default=0.0)


def _finding(pair: Pair, far: float, moved: float) -> Finding:
    ours, theirs = pair.keras[0], pair.torch[0]
    text = f"{pair.label}: neither side trains it, the code of each makes it, and torch's makes other numbers: {far:.2g} of the largest apart"
    evidence = (
        f"by experiment: built at other seeds either side makes the same again; with torch's own in place of Keras's, which are copied, its outputs"
        f" change by {moved:.2g}"
    )
    fix = f"have torch's code make {theirs} as Keras's makes {ours}, or load it with the weights"
    layer = ours.rpartition("/")[0] or ours
    why = Explanation("constant:table", text, "confirmed", fix, evidence, defect=ours, layers=(layer,))
    row = TensorComparison(f"before/as built/{ours}", None, far, limits.ROUNDED_CONSTANT)
    return finding_of("before", [row], why=why)
