"""Recipes on tables."""

from __future__ import annotations

from parity.common.recipes.models import sequence
from parity.common.spec import AdamW, TrainSpec
from parity.common.spec.data import DataSpec
from parity.common.spec.losses import BinaryCrossEntropy
from parity.common.spec.sources import Synthetic


def wide_and_deep(tiny: bool = False) -> TrainSpec:
    """Wide and deep with embeddings of the category columns; by default the columns of the census income data.

    Command: parity run --recipe wide_and_deep; your table: --set data.source='{kind: csv, path: ..., ...}'
    """
    numbers, categories = (2, (3, 5)) if tiny else (6, (9, 16, 7, 15, 6, 5, 2, 42))
    model = sequence.wide_and_deep_model(
        numbers, categories, features=4 if tiny else 8, hidden=(16, 8) if tiny else (100, 50)
    )
    return TrainSpec(
        name="wide_and_deep_tiny" if tiny else "wide_and_deep",
        model=model,
        data=DataSpec(
            source=Synthetic(shape=model.input_shape, classes=2, categories=categories),
            train_samples=150 if tiny else 32_561,
            eval_samples=30 if tiny else 16_281,
        ),
        loss=BinaryCrossEntropy(),
        optimizer=AdamW(learning_rate=0.01 if tiny else 0.001),
        global_batch_size=16 if tiny else 512,
        steps=100 if tiny else 1_000,
    )
