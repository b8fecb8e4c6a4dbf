"""What Keras's model computes with, and torch's never touches: a layer that is not called, an input that is not read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.base.words import listed
from parity.common.diagnosis.result import Confidence, Explanation
from parity.common.external.pairs.explain import Attribution, DeviatingTensor
from parity.common.external.pairs.varied_weights import varied
from parity.common.external.process.pass_result import Array, Arrays

NOT_CALLED = "weights_not_used"


def by_unused(tensor: DeviatingTensor, first: bool) -> list[Attribution]:
    """Return that torch leaves out a layer, or else an input, that Keras's numbers at this place come from; [] where it does not.

    Args:
        tensor: what deviates.
        first: whether nothing before it does: else what is left out there may be why an input is not read here.
    """
    return [*_uncalled(tensor)] or [*(_unread(tensor) if first else ())]


def _uncalled(tensor: DeviatingTensor) -> Iterator[Attribution]:
    bench = tensor.bench
    keras, torch = bench.outlines
    owner = {info.name: info.layer for info in keras.tensors}
    idle = {info.name: info for info in torch.tensors if info.name in torch.unused}
    pairs = [
        pair
        for pair in bench.mapping.tensors
        if pair.torch
        and all(name in idle for name in pair.torch)
        and not {*pair.keras} & {*keras.unused}
        and any(owner.get(name) in tensor.segment.keras for name in pair.keras)
    ]
    state = bench.keras.read()
    state = {name: state[name] for pair in pairs for name in pair.keras if name in state}
    if not state:
        return
    before = _keras_at(tensor, bench.inputs[0])
    bench.keras.write(varied(state))
    after = _keras_at(tensor, bench.inputs[0])
    bench.keras.write(state)
    apart = _apart(before, after)
    if not apart:
        return
    # Of a layer that is not called its own name says it.
    whole = {info.layer for info in idle.values()} - {layer.path for layer in torch.layers if layer.calls}
    names = [name for pair in pairs for name in pair.torch]
    theirs = dict.fromkeys(idle[name].layer if idle[name].layer in whole else name for name in names)
    ours = tuple(dict.fromkeys(owner[name] for name in state))
    does = "never calls" if all(name in whole for name in theirs) else "never uses"
    what = listed(theirs)
    text = f"torch's forward pass {does} {what}; Keras computes with its {listed(ours)}"
    evidence = (
        f"by experiment: with other weights there Keras's numbers here change by {apart:.2g}; a pass of torch's touches"
        " none of them"
    )
    fix = f"compute with {what} in torch's forward pass"
    yield Attribution(Explanation(NOT_CALLED, text, "confirmed", fix, evidence, defect=what, layers=ours))


def _unread(tensor: DeviatingTensor) -> Iterator[Attribution]:
    bench = tensor.bench
    ours, theirs = bench.inputs
    # What is no counterpart may read another input.
    owner = {info.name: info.layer for info in bench.outlines[0].tensors}
    doubtful = {owner.get(key) for pair in bench.mapping.tensors if pair.is_ambiguous for key in pair.keras}
    sure = not doubtful & {*tensor.segment.keras}
    for name in ours if len(ours) > 1 else ():
        try:
            here = _apart(_keras_at(tensor, ours), _keras_at(tensor, _rolled(ours, name)))
            there = _apart(_torch_at(tensor, theirs), _torch_at(tensor, _rolled(theirs, name)))
        except ExternalModelError:  # as where an input names places that another one fills
            continue
        if here and not there:
            text = f"torch's numbers here do not depend on the input {name}, and Keras's do"
            evidence = f"by experiment: with its rows in another order Keras's numbers change by {here:.2g}, torch's by nothing"
            fix = f"compute with {name} in torch, too"
            confidence: Confidence = "confirmed" if sure else "likely"
            yield Attribution(Explanation("input_not_read", text, confidence, fix, evidence, defect=name))
            return


def _keras_at(tensor: DeviatingTensor, inputs: Arrays) -> Arrays:
    point = tensor.segment.point
    taps = False if point is None else [point.keras]
    passed = tensor.bench.keras.forward(inputs, training=False, taps=taps)
    return passed.outputs if point is None else passed.activations


def _torch_at(tensor: DeviatingTensor, inputs: Arrays) -> Arrays:
    point = tensor.segment.point
    taps = False if point is None else [point.torch]
    passed = tensor.bench.torch.forward(inputs, training=False, taps=taps)
    return passed.outputs if point is None else passed.activations


def _rolled(inputs: Arrays, name: str) -> Arrays:
    return {**inputs, name: np.roll(inputs[name], 1, axis=0)}


def _apart(before: Arrays, after: Arrays) -> float:
    """The largest change of any number; 0 where nothing changes."""
    changes: list[Array] = [np.abs(after[name] - value) for name, value in before.items()]
    return max((float(change.max(initial=0.0)) for change in changes), default=0.0)
