"""Signatures of layers in another mode, with other masks, or evaluated with other weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import Case, Match
from parity.common.diagnosis.explain.signatures.layers import (
    Layer,
    Try,
    divided,
    is_wrong,
    layer_of,
    plain,
    tried,
)
from parity.common.diagnosis.explain.spec_variants import said


def other_mode(case: Case) -> Match | None:
    """The layer behaves as in evaluation, in training; or the other way round."""
    layer = layer_of(case)
    if layer is None:
        return None
    training = case.step is None
    tries = []
    for step in dict.fromkeys((case.step or 0, 0, case.spec.steps)):
        variant = plain(case, layer, training=training, step=step, dy=layer.dy)
        words = f"in {'training' if training else 'inference'} mode"
        tries.append(Try(words, (variant,)))
        if case.replicas > 1:
            tries.append(Try(f"{words}, replica by replica", divided(case, variant), split=True))
    return tried(case, tries)


def averaged_weights(case: Case) -> Match | None:
    """The evaluation is made with the weights in place of their average, or with it in place of them."""
    layer, state = layer_of(case), case.evidence.state or {}
    if layer is None or case.step is not None or case.spec.optimizer.ema is None:
        return None
    own = {
        n: state.get(f"slots/average/{n.removeprefix('parameters/')}", v) for n, v in layer.tensors.items()
    }
    facts = {"field": "evaluate", "value": "another", "own": said(case.spec.optimizer.ema.evaluate)}
    plainly = {n: state.get(n, v) for n, v in layer.tensors.items()}
    tries = [
        Try(words, (plain(case, layer, tensors=tensors),), {**facts, "where": "optimizer.ema"})
        for words, tensors in (
            ("with the average of the weights", own),
            ("with the weights themselves", plainly),
        )
    ]
    return tried(case, tries)


def masks_by_place(case: Case) -> Match | None:
    """Masks are keyed by a sample's place in its replica's batch, so that every replica has the same."""
    layer = layer_of(case)
    if layer is None or not _draws(layer):
        return None
    places = [np.arange(len(ids), dtype=np.int64) for ids in case.ids]
    pieces = case.micro_batches
    in_pieces = [
        np.concatenate([np.arange(len(part)) for part in np.array_split(ids, pieces)]) for ids in places
    ]
    tries = [
        Try(
            "with masks keyed by the place in the local batch",
            divided(case, plain(case, layer), places),
            split=True,
        )
    ]
    if pieces > 1:
        words = "with masks keyed by the place in the micro-batch"
        tries.append(Try(words, divided(case, plain(case, layer), in_pieces), split=True))
    return tried(case, tries)


def masks_otherwise(case: Case) -> Match | None:
    """Masks are other draws: of another step, seed, or for all samples alike."""
    layer = layer_of(case)
    if layer is None or not _draws(layer):
        return None
    step, ids = case.step or 0, np.sort(np.concatenate(case.ids))
    flat = np.split(np.arange(len(ids)), case.bounds)
    tries = [
        *(
            Try(f"with the masks of step {other}", (plain(case, layer, step=other),))
            for other in dict.fromkeys((0, step - 1, step + 1, step + 2))
            if other != step and other >= 0
        ),
        *(
            Try(f"with masks of seed {seed}", (plain(case, layer, seed=seed),))
            for seed in (0, 1, 2, case.spec.seed + 1, 42)
            if seed != case.spec.seed
        ),
        *(
            Try(f"with seed {seed} plus the replica's number", _reseeded(case, layer, seed), split=True)
            for seed in (case.spec.seed,)
        ),
        Try("with one mask for all samples", (plain(case, layer, ids=np.zeros_like(ids)),)),
        Try(
            "with masks keyed by the place in the global batch",
            divided(case, plain(case, layer), flat),
            split=True,
        ),
    ]
    return tried(case, tries) or _any_mask(case, layer)


def _reseeded(case: Case, layer: Layer, seed: int) -> tuple[Any, ...]:
    parts = divided(case, plain(case, layer))
    return tuple(replace(part, seed=seed + replica) for replica, part in enumerate(parts))


def _any_mask(case: Case, layer: Layer) -> Match | None:
    """Of a dropout: every output is its input scaled, or nothing; which ones is another draw."""
    if layer.spec.kind != "dropout" or "y" not in layer.made or case.step is None:
        return None
    before = is_wrong(case)
    made, kept = np.asarray(layer.made["y"], np.float64), np.asarray(layer.x) / (1 - layer.spec.rate)
    if before is None or made.shape != kept.shape:
        return None
    if not np.all((made == 0) | (np.abs(made - kept) <= limits.FITS * np.abs(kept))):
        return None
    facts = {"layer": layer.node.path, "kind": "dropout", "words": "with masks of other draws"}
    return Match(facts, before, 0.0, "every output is its input scaled, or zero, but not where it should be")


def _draws(layer: Layer) -> bool:
    names = ("rate", "dropout", "drop_rate", "input_dropout", "recurrent_dropout")
    return any(getattr(layer.spec, name, 0.0) for name in names)
