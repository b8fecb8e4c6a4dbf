"""Signatures of layers in another mode, with other masks, or evaluated with other weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case
from parity.common.diagnosis.explain.signatures.base import Match
from parity.common.diagnosis.explain.signatures.layers import (
    DROPPING,
    Layer,
    Try,
    averaged,
    divided,
    is_wrong,
    layer_of,
    layer_signature,
    plain,
)
from parity.common.diagnosis.explain.spec_variants import setting


@layer_signature
def other_mode(case: Case, layer: Layer) -> Iterator[Try]:
    """The layer behaves as in evaluation, in training; or the other way round."""
    training = case.step is None
    words = f"in {'training' if training else 'inference'} mode"
    for step in dict.fromkeys((case.step or 0, 0, case.spec.steps)):
        variant = plain(case, layer, training=training, step=step)
        yield Try(words, (variant,))
        if case.replicas > 1:
            yield Try(f"{words}, replica by replica", divided(case, variant), split=True)


@layer_signature
def averaged_weights(case: Case, layer: Layer) -> Iterator[Try]:
    """The evaluation is made with the weights in place of their average, or with it in place of them."""
    ema, state = case.spec.optimizer.ema, case.state or {}
    if case.step is not None or ema is None:
        return
    facts = setting(ema, "evaluate", "another", "optimizer.ema")
    plainly = {n: state.get(n, v) for n, v in layer.tensors.items()}
    for words, tensors in (
        ("with the average of the weights", averaged(case, layer.tensors)),
        ("with the weights themselves", plainly),
    ):
        yield Try(words, (plain(case, layer, tensors=tensors),), facts)


@layer_signature
def masks_by_place(case: Case, layer: Layer) -> Iterator[Try]:
    """Masks are keyed by a sample's place in its replica's batch, so that every replica has the same."""
    pieces = case.micro_batches
    for what, parts in (("local batch", 1), ("micro-batch", pieces)):
        if not _draws(layer) or (what == "micro-batch" and pieces == 1):
            continue
        places = [
            np.concatenate([np.arange(len(part)) for part in np.array_split(ids, parts)]) for ids in case.ids
        ]
        words = f"with masks keyed by the place in the {what}"
        yield Try(words, divided(case, plain(case, layer), places), split=True)


def masks_otherwise(case: Case) -> Iterator[Match]:
    """Masks are other draws: of another step, seed, or for all samples alike."""
    yield from _other_draws(case)
    drawn = _any_mask(case)
    if drawn is not None:
        yield drawn


@layer_signature
def _other_draws(case: Case, layer: Layer) -> Iterator[Try]:
    if not _draws(layer):
        return
    step, seed, ids = case.step or 0, case.spec.seed, np.sort(np.concatenate(case.ids))
    steps = {"the first step": 0, "the step before": step - 1, "the next step": step + 1}
    for words, other in {**steps, "the step after the next": step + 2}.items():
        if (other != step or case.claim is not None) and other >= 0:
            yield Try(f"with the masks of {words}", (plain(case, layer, step=other),))
    for other in (0, 1, 2, seed + 1, 42):
        if other != seed:
            yield Try(f"with masks of seed {other}", (plain(case, layer, seed=other),))
    each = divided(case, plain(case, layer))
    reseeded = tuple(replace(part, seed=seed + replica) for replica, part in enumerate(each))
    yield Try(f"with seed {seed} plus the replica's number", reseeded, split=True)
    yield Try("with one mask for all samples", (plain(case, layer, ids=np.zeros_like(ids)),))
    places = divided(case, plain(case, layer), np.split(np.arange(len(ids)), case.bounds))
    yield Try("with masks keyed by the place in the global batch", places, split=True)


def _any_mask(case: Case) -> Match | None:
    """Of a dropout: every output is its input scaled, or nothing; which ones is another draw."""
    layer, before = layer_of(case), is_wrong(case)
    if layer is None or before is None or case.step is None:
        return None
    if layer.spec.kind != "dropout" or not _draws(layer) or "y" not in layer.made:
        return None
    made, kept = np.asarray(layer.made["y"], np.float64), np.asarray(layer.x) / (1 - layer.spec.rate)
    if made.shape != kept.shape:
        return None
    if not np.all((made == 0) | (np.abs(made - kept) <= limits.FITS * np.abs(kept))):
        return None
    tried = "every output is its input scaled, or zero, but not where it should be"
    return Match(layer.facts("with masks of other draws"), before, 0.0, tried)


def _draws(layer: Layer) -> bool:
    return any(getattr(layer.spec, name, 0.0) for name in DROPPING)
