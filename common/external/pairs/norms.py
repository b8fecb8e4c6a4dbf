"""Stock batch norms: torch keeps the variance of N values over N - 1 for evaluation, and Keras over N, whatever a port does.

The training is the same with either. So models with stock norms alone are compared with Keras's variance, and the difference is reported.
"""

from __future__ import annotations

from dataclasses import replace

from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import LoadedPair
from parity.common.external.pairs.points import paired_layers
from parity.common.external.pairs.request import PairRequest
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.mapping import Mapping
from parity.common.spec.external.outline import Outline

_SETTING = "running_variance"


def settle_norms(asked: PairRequest, opened: LoadedPair, mapping: Mapping) -> LoadedPair:
    """Have torch's batch norms keep the variance that Keras's keep, where all of both are stock ones.

    Args:
        asked, opened: both models, with equal weights. mapping: of their tensors.

    Returns:
        The models as they are from now on; `norms` says so where something changed.
    """
    layers = [{info.path: info for info in outline.layers} for outline in opened.outlines]
    pairs = [
        (layers[0][pair.keras], layers[1][pair.torch])
        for pair in paired_layers(*opened.outlines, mapping)
        if pair.keras in layers[0] and pair.torch in layers[1]
    ]
    norms = [(ours, theirs) for ours, theirs in pairs if ours.kind == theirs.kind == "batch_norm"]
    every = [info for side in layers for info in side.values() if info.kind == "batch_norm"]
    due = all(
        (ours.settings.get(_SETTING), theirs.settings.get(_SETTING)) == ("biased", "unbiased")
        for ours, theirs in norms
    )
    if asked.precision != "float64" or not norms or not due or any(info.overridden for info in every):
        return opened
    side, _, inputs = opened.sides[1]
    with exact_constants(opened):
        before = side.forward(inputs, training=True, taps=False).buffers
        side.biased_variances()
        after = side.forward(inputs, training=True, taps=False).buffers
    apart = max(
        (tensor_deviation(value, after[name]) for name, value in before.items() if name in after), default=0.0
    )
    if not apart:
        return opened
    named = norms[0][0].path + (f" and {len(norms) - 1} more" if len(norms) > 1 else "")
    told = (
        f"stock batch norms ({named}): for evaluation torch keeps a variance over N - 1 values, Keras over N. This is no fault of the port: both"
        f" keep Keras's here. In the port as written one step changes these running variances by up to {apart:.2g}; the FAQ has a subclass that keeps Keras's"
    )
    outlines = (opened.outlines[0], _biased(opened.outlines[1]))
    return replace(opened, outlines=outlines, norms=told)


def _biased(outline: Outline) -> Outline:
    layers = (
        info.model_copy(update={"settings": {**info.settings, _SETTING: "biased"}})
        if info.kind == "batch_norm"
        else info
        for info in outline.layers
    )
    return outline.model_copy(update={"layers": tuple(layers)})
