"""What one side trains and the other does not, in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parity.common.base.words import listed
from parity.common.diagnosis.result import Explanation, TensorComparison
from parity.common.external.pairs.bench import Bench
from parity.common.spec.external.outline import Outline

_LISTED = 6


def frozen_cause(
    bench: Bench, side: str, keras: Collection[str], torch: Collection[str], now: Sequence[TensorComparison]
) -> Explanation:
    """Explain a gradient that one side alone has.

    Args:
        bench: both models.
        side: the one that freezes, 'keras' or 'torch'.
        keras, torch: the tensors, by the names of either side.
        now: their gradients compared while both sides are made to give them.
    """
    ours, theirs = (
        listed(_owners(outline, names), _LISTED)
        for outline, names in zip(bench.outlines, (keras, torch), strict=True)
    )
    worst = max((row.deviation for row in now), default=0.0)
    agree = bool(now) and all(row.agrees for row in now)
    if side == "keras":
        text = f"frozen in Keras and trained in torch: {ours} ({theirs} in torch)"
        fix = f"requires_grad_(False) in torch on the parameters of {theirs}"
    else:
        text = f"frozen in torch and trained in Keras: {ours} ({theirs} in torch)"
        fix = f"requires_grad_(True) in torch on the parameters of {theirs}"
    evidence = (
        f"by experiment: made to give the gradients of these, both sides give the same, at most {worst:.2g} apart,"
        " and not zero"
        if agree
        else "read from the live models; their gradients in Keras are not zero"
    )
    return Explanation("frozen", text, "confirmed" if agree else "likely", fix, evidence)


def _owners(outline: Outline, names: Collection[str]) -> list[str]:
    """Layers all of whose parameters are among the names, and the names of the others."""
    parameters: dict[str, set[str]] = {}
    for info in outline.tensors:
        if not info.buffer:
            parameters.setdefault(info.layer, set()).add(info.name)
    owners = {info.name: info.layer for info in outline.tensors}
    order = [info.name for info in outline.tensors if info.name in names]
    whole = [owners[name] if parameters.get(owners[name], {""}) <= set(names) else name for name in order]
    return list(dict.fromkeys(whole))
