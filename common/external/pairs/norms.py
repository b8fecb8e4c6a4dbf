"""Stock batch norms: torch keeps the variance of N values over N - 1 for evaluation, and Keras over N, whatever a port does.

The training is the same with either. So models with stock norms alone are compared with Keras's variance, and the difference is reported.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import LoadedPair
from parity.common.external.pairs.request import PairRequest
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.mapping import Mapping
from parity.common.spec.external.outline import LayerInfo, Outline

_SETTING = "running_variance"


def settle_norms(asked: PairRequest, opened: LoadedPair, mapping: Mapping) -> LoadedPair:
    """Have torch's batch norms keep the variance that Keras's keep, where all of both are stock ones.

    Args:
        asked, opened: both models, with equal weights. mapping: of their tensors.

    Returns:
        The models as they are from now on; `norms` says so where something changed.
    """
    norms = [
        _norms_of(outline, {*mapping.names(side)})
        for outline, side in zip(opened.outlines, ("keras", "torch"), strict=True)
    ]
    # A class of torch's that derives from a stock one, and leaves its statistics to it, has them too.
    due = all(info.settings.get(_SETTING) == "biased" and not info.overridden for info in norms[0]) and all(
        info.settings.get(_SETTING) == "unbiased" or info.overridden for info in norms[1]
    )
    if asked.precision != "float64" or not all(norms) or not due:
        return opened
    (keras, _, ours), (torch, _, theirs) = opened.sides
    with exact_constants(opened):
        before = torch.forward(theirs, training=True, taps=False).buffers
        torch.biased_variances(True)
        after = torch.forward(theirs, training=True, taps=False).buffers
        apart = {
            name: tensor_deviation(value, after[name]) for name, value in before.items() if name in after
        }
        if any(info.overridden for info in norms[1]):
            kept = mapping.to_torch(keras.forward(ours, training=True, taps=False).buffers, partial=True)
            far = [
                [tensor_deviation(kept[n], each[n]) for n in apart if n in kept] for each in (before, after)
            ]
            if any(now > then for then, now in zip(*far, strict=True)):
                torch.biased_variances(False)
                return opened
    if not any(apart.values()):
        return opened
    named = norms[0][0].path + (f" and {len(norms[0]) - 1} more" if len(norms[0]) > 1 else "")
    told = (
        f"stock batch norms ({named}): for evaluation torch keeps a variance over N - 1 values, Keras over N. This is no fault of the port: both"
        f" keep Keras's here. In the port as written one step changes these running variances by up to {max(apart.values()):.2g}; the FAQ has a subclass that keeps Keras's"
    )
    outlines = (opened.outlines[0], _biased(opened.outlines[1]))
    return replace(opened, outlines=outlines, norms=told)


def _norms_of(outline: Outline, mapped: Collection[str]) -> list[LayerInfo]:
    """The batch norms of which a statistic has a counterpart."""
    owning = {info.layer for info in outline.tensors if info.buffer and info.name in mapped}
    return [info for info in outline.layers if info.kind == "batch_norm" and info.path in owning]


def _biased(outline: Outline) -> Outline:
    layers = (
        info.model_copy(update={"settings": {**info.settings, _SETTING: "biased"}})
        if info.kind == "batch_norm"
        else info
        for info in outline.layers
    )
    return outline.model_copy(update={"layers": tuple(layers)})
