"""What recipes on synthetic data share; where they are made tiny, they train in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.common.spec import ModelSpec, TrainSpec
from parity.common.spec.augment import AugmentSpec
from parity.common.spec.data import DataSpec
from parity.common.spec.sources import Synthetic


def on_synthetic(
    name: str,
    tiny: bool,
    model: ModelSpec,
    source: Mapping[str, Any],
    *augment: AugmentSpec,
    samples: tuple[int, int],
    batch: int,
    steps: int,
    **fields: Any,
) -> TrainSpec:
    """A model's training on samples that suit it; the tiny one has an uneven last batch.

    source: fields of Synthetic. samples: to train on, and to evaluate on. fields: others of TrainSpec.
    """
    train_samples, eval_samples = (150, 30) if tiny else samples
    return TrainSpec(
        name=f"{name}_tiny" if tiny else name,
        model=model,
        data=DataSpec(
            source=Synthetic(shape=model.input_shape, **source),
            train_samples=train_samples,
            eval_samples=eval_samples,
            augment=augment,
        ),
        global_batch_size=16 if tiny else batch,
        steps=100 if tiny else steps,
        **fields,
    )
