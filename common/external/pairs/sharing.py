"""What one side alone has, so that training takes the two apart: tensors, and a state between calls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import (
    Confidence,
    Diagnosis,
    Explanation,
    Finding,
    StepComparison,
    TensorComparison,
    When,
)
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench, LoadedPair
from parity.common.external.pairs.dropout import KeptStateError
from parity.common.external.pairs.search import STEP, finding_of

IGNORED = "rule:ignored"


def unshared_layer(bench: Bench) -> Iterator[Finding]:
    """Yield the layers that only one side shares, if there are some."""
    found = bench.unshared
    if found is None:
        return
    sides = [("Keras", found.keras), ("torch", found.torch)]
    (shares, one), (other, several) = sides if found.side == "keras" else sides[::-1]
    text = f"{shares} calls {one} several times with the same weights, and {other} has {several}, each with its own"
    evidence = (
        "by experiment: with equal weights in these the outputs agree; each is trained by its own gradient"
    )
    if not found.agrees:
        evidence = "read from the live models: as many calls, and tensors of the same shapes"
    confidence: Confidence = "confirmed" if found.agrees else "likely"
    fix = f"call one of {found.torch} each time in torch"
    if found.side == "torch":
        fix = f"give each call of {one} a layer of its own in torch"
    row = TensorComparison(f"update/{found.keras}", None, math.inf, limits.LIVE_FLOAT64)
    yield finding_of("update", [row], why=Explanation("structure:unshared", text, confidence, fix, evidence))


def kept_state(error: KeptStateError, opened: LoadedPair) -> Diagnosis | None:
    """The divergence of a model that keeps something between its calls from one that does not; None where both do."""
    keras = error.framework == "tensorflow"
    name, side, inputs = (
        ("Keras", opened.torch, opened.inputs[1]) if keras else ("torch", opened.keras, opened.inputs[0])
    )
    if side.repeated(inputs):
        return None
    why = Explanation(
        "state:kept",
        f"{name}'s model keeps something of the call before, and the other one does not",
        "confirmed",
        f"begin each call anew in {name}, e.g. with a state of zeros",
        f"by experiment: called twice with the same samples and random numbers, its outputs are {error.deviation:.2g} apart, and"
        " those of the other one equal",
    )
    row = TensorComparison("forward/output", None, error.deviation, limits.LIVE_FLOAT64)
    return Diagnosis(
        "live models",
        f"keras {opened.outlines[0].target}",
        f"torch {opened.outlines[1].target}",
        "pair",
        "divergent",
        When(STEP, f"the outputs of one model's second call differ by {error.deviation:.2g} from its first"),
        steps=(StepComparison(STEP, (row,), (row,)),),
        findings=(finding_of("forward", [row], why=why),),
    )


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
        only = "torch has (requires_grad_(False))" if pair.torch else "Keras has (trainable=False)"
        fix = f"freeze what only {only}, or give both sides the same tensors"
        if names[0].rpartition("/")[2].rpartition(".")[2] == "bias" and not pair.parsed.shared_by_one:
            fix = f"build the layer without it ({'bias' if pair.torch else 'use_bias'}=False), or give the other one a bias, too"
        if pair.parsed.shared_by_one:
            fix = (
                f"tie {' and '.join(pair.torch if len(pair.torch) > 1 else pair.keras)} too, or neither side"
            )
        evidence = f"read from the live models: the gradient of {names[0]} is {sizes[names[0]]:.2g} at most, not zero"
        rule, first = pair.rule.partition("(")[0], (pair.keras or pair.torch)[0]
        layer = first.rpartition("/")[0] or first
        # Of what only order tells nobody knows yet that it has no counterpart.
        why = Explanation(
            f"rule:{rule}",
            text,
            "likely" if rule == "constant" and pair.doubt is not None else "confirmed",
            fix,
            evidence,
            defect=rule,
            layers=(layer,),
        )
        yield _untrained(first, why)
    sides = ("Keras", "torch"), ("torch", "Keras")
    for (side, other), outline, passed in zip(sides, bench.outlines, passes, strict=True):
        trainable = {info.name for info in outline.tensors if info.trainable}
        for name in sorted(
            trainable.intersection(getattr(bench.mapping.ignored, side.lower()), passed.gradients)
        ):
            size = float(np.abs(passed.gradients[name]).max(initial=0.0))
            if size > least:
                why = Explanation(
                    IGNORED,
                    f"the mapping ignores {name}, which {side} trains and {other} has not",
                    "confirmed",
                    f"give it a counterpart, or freeze it in {side}",
                    f"read from the live model: its gradient is {size:.2g} at most, not zero",
                    layers=(name.rpartition("/")[0] or name,),
                )
                yield _untrained(name, why)


def _untrained(name: str, why: Explanation) -> Finding:
    row = TensorComparison(f"update/{name}", None, math.inf, limits.LIVE_FLOAT64)
    return finding_of("update", [row], why=why)


def one_side_alone(bench: Bench) -> bool:
    """Whether one side trains a tensor that the other one has not."""
    causes = (found.explanation.cause for found in unequal_tensors(bench) if found.explanation is not None)
    return not {"rule:constant", IGNORED}.isdisjoint(causes)
