"""Recipes on token sequences and on tables, synthetic ones unless told otherwise.

Your own text: --set data.source='{kind: tokens, path: train.bin, length: 1024}'.
"""

from __future__ import annotations

from parity.common.recipes.made import on_synthetic
from parity.common.recipes.models import sequence
from parity.common.spec import Adam, AdamW, TrainSpec, WarmupCosine
from parity.common.spec.augment import MaskTokens
from parity.common.spec.losses import BinaryCrossEntropy, SoftmaxCrossEntropy

_SMALL_TRANSFORMER = {"vocabulary": 61, "positions": 16, "tokens": 12, "width": 24, "depth": 2, "heads": 3}
_SMALL_RECURRENT = {"vocabulary": 50, "tokens": 10, "features": 8, "units": 6}


def gpt2(tiny: bool = False) -> TrainSpec:
    """GPT-2, 124 million, the output tied to the embedding.

    124,439,808 parameters.

    Command: parity run --recipe gpt2:tiny
    """
    return on_synthetic(
        "gpt2",
        tiny,
        sequence.gpt2_model(**_SMALL_TRANSFORMER) if tiny else sequence.gpt2_model(),
        {"target": "next", "vocabulary": 61 if tiny else 50257},
        samples=(100_000, 200),
        optimizer=AdamW(
            learning_rate=0.003 if tiny else 6e-4,
            beta_2=0.95,
            weight_decay=0.1,
            clip_global_norm=1.0,
            decay_mask="matrices",
        ),
        schedule=WarmupCosine(warmup_steps=10 if tiny else 2_000, final_fraction=0.1),
        batch=512,
        steps=100_000,
    )


def bert_base(tiny: bool = False) -> TrainSpec:
    """BERT base on masked words; padding is masked and not counted.

    109,514,298 parameters.

    Command: parity run --recipe bert_base:tiny
    """
    vocabulary, mask_id, spared = (61, 2, (0, 1)) if tiny else (30522, 103, (0, 101, 102))
    return on_synthetic(
        "bert_base",
        tiny,
        sequence.bert_model(**_SMALL_TRANSFORMER, separator_id=1) if tiny else sequence.bert_model(),
        {"target": "input", "vocabulary": vocabulary, "pad_id": 0, "shortest": 4},
        MaskTokens(vocabulary=vocabulary, mask_id=mask_id, spared=spared),
        samples=(100_000, 1_000),
        loss=SoftmaxCrossEntropy(ignore=-100),
        optimizer=AdamW(
            learning_rate=0.003 if tiny else 1e-4,
            weight_decay=0.01,
            clip_global_norm=1.0,
            decay_mask="matrices",
        ),
        schedule=WarmupCosine(warmup_steps=10 if tiny else 10_000),
        batch=256,
        steps=1_000_000,
    )


def lstm_classifier(tiny: bool = False) -> TrainSpec:
    """Two bidirectional LSTMs over a text, as in Keras's example on IMDB.

    2,757,761 parameters.

    Command: parity run --recipe lstm_classifier:tiny
    """
    return on_synthetic(
        "lstm_classifier",
        tiny,
        sequence.text_classifier_model(dropout=0.2, **_SMALL_RECURRENT if tiny else {}),
        {"classes": 2, "vocabulary": 50 if tiny else 20_000, "pad_id": 0, "shortest": 3},
        samples=(25_000, 1_000),
        loss=BinaryCrossEntropy(),
        optimizer=Adam(learning_rate=0.01 if tiny else 0.001),
        batch=32,
        steps=1_600,
    )


def gru_tagger(tiny: bool = False) -> TrainSpec:
    """A bidirectional GRU that gives each token one of 17 tags; padding is not counted.

    Command: parity run --recipe gru_tagger:tiny
    """
    vocabulary, tags = (50, 5) if tiny else (10_000, 17)
    return on_synthetic(
        "gru_tagger",
        tiny,
        sequence.tagger_model(tags=tags, **_SMALL_RECURRENT if tiny else {}),
        {"target": "tags", "classes": tags, "vocabulary": vocabulary, "pad_id": 0, "shortest": 3},
        samples=(12_500, 1_000),
        loss=SoftmaxCrossEntropy(mask_padding=True),
        optimizer=Adam(learning_rate=0.01 if tiny else 0.001),
        batch=32,
        steps=4_000,
    )


def wide_and_deep(tiny: bool = False) -> TrainSpec:
    """Wide and deep with embeddings of the category columns; by default the columns of the census income data.

    Command: parity run --recipe wide_and_deep; your table: --set data.source='{kind: csv, path: ..., ...}'
    """
    numbers, categories = (2, (3, 5)) if tiny else (6, (9, 16, 7, 15, 6, 5, 2, 42))
    return on_synthetic(
        "wide_and_deep",
        tiny,
        sequence.wide_and_deep_model(
            numbers, categories, features=4 if tiny else 8, hidden=(16, 8) if tiny else (100, 50)
        ),
        {"classes": 2, "categories": categories},
        samples=(32_561, 16_281),
        loss=BinaryCrossEntropy(),
        optimizer=AdamW(learning_rate=0.01 if tiny else 0.001),
        batch=512,
        steps=1_000,
    )
