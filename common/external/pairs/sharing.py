"""Tensors of which one side has more than the other, so that training takes them apart."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Confidence, Explanation, Finding, TensorComparison
from parity.common.external.pairs.bench import Bench, exact_constants
from parity.common.external.pairs.search import finding_of


def unshared_layer(bench: Bench) -> Iterator[Finding]:
    """Yield the layer that only Keras shares, if there is one."""
    found = bench.unshared
    if found is None:
        return
    text = f"Keras calls {found.keras} several times with the same weights, and torch has {found.torch}, each with its own"
    evidence = (
        "by experiment: with equal weights in these the outputs agree; each is trained by its own gradient"
    )
    if not found.agrees:
        evidence = "read from the live models: as many calls, and tensors of the same shapes"
    confidence: Confidence = "confirmed" if found.agrees else "likely"
    fix = f"call one of {found.torch} each time in torch"
    row = TensorComparison(f"update/{found.keras}", None, math.inf, limits.LIVE_FLOAT64)
    yield finding_of("update", [row], why=Explanation("structure:unshared", text, confidence, fix, evidence))


def unequal_tensors(bench: Bench) -> Iterator[Finding]:
    """Yield tensors of which one side has more than the other, and whose gradients are not zero: training takes them apart."""
    trained = {info.name for outline in bench.outlines for info in outline.tensors if info.trainable}
    with exact_constants(bench):
        passes = bench.reference(True), bench.torch_pass(True)
    sizes = {n: float(np.abs(v).max(initial=0.0)) for p in passes for n, v in p.gradients.items()}
    least = limits.ROUNDING_SHARE * max(sizes.values(), default=0.0) / limits.LIVE_FLOAT64
    for pair in bench.mapping.tensors:
        note = pair.parsed.note
        frozen = pair.rule == "two_biases" and not trained.issuperset(pair.torch)
        names = [name for name in (*pair.keras, *pair.torch) if sizes.get(name, 0.0) > least]
        if not note or frozen or not names:
            continue
        text = f"{pair.label} (rule {pair.rule}): {note}"
        fix = "freeze what only torch has (requires_grad_(False)), or give both sides the same tensors"
        if pair.parsed.shared_by_one:
            fix = (
                f"tie {' and '.join(pair.torch if len(pair.torch) > 1 else pair.keras)} too, or neither side"
            )
        evidence = f"read from the live models: the gradient of {names[0]} is {sizes[names[0]]:.2g} at most, not zero"
        rule, first = pair.rule.partition("(")[0], (pair.keras or pair.torch)[0]
        layer = first.rpartition("/")[0] or first
        why = Explanation(f"rule:{rule}", text, "confirmed", fix, evidence, defect=rule, layers=(layer,))
        name = f"update/{first}"
        yield finding_of("update", [TensorComparison(name, None, math.inf, limits.LIVE_FLOAT64)], why=why)
