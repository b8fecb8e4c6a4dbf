"""Recipes on token sequences, synthetic ones unless told otherwise.

Your own text: --set data.source='{kind: tokens, path: train.bin, length: 1024}'.
"""

from __future__ import annotations

from parity.common.recipes.models import sequence
from parity.common.spec import Adam, AdamW, TrainSpec, WarmupCosine
from parity.common.spec.augment import MaskTokens
from parity.common.spec.data import DataSpec
from parity.common.spec.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from parity.common.spec.sources import Synthetic


def gpt2(tiny: bool = False) -> TrainSpec:
    """GPT-2, 124 million, the output tied to the embedding.

    124,439,808 parameters.

    Command: parity run --recipe gpt2:tiny
    """
    small = {"vocabulary": 61, "positions": 16, "tokens": 12, "width": 24, "depth": 2, "heads": 3}
    model = sequence.gpt2_model(**small) if tiny else sequence.gpt2_model()
    return TrainSpec(
        name="gpt2_tiny" if tiny else "gpt2",
        model=model,
        data=DataSpec(
            source=Synthetic(shape=model.input_shape, target="next", vocabulary=61 if tiny else 50257),
            train_samples=150 if tiny else 100_000,
            eval_samples=30 if tiny else 200,
        ),
        optimizer=AdamW(
            learning_rate=0.003 if tiny else 6e-4,
            beta_2=0.95,
            weight_decay=0.1,
            clip_global_norm=1.0,
            decay_mask="matrices",
        ),
        schedule=WarmupCosine(warmup_steps=10 if tiny else 2_000, final_fraction=0.1),
        global_batch_size=16 if tiny else 512,
        steps=100 if tiny else 100_000,
    )


def bert_base(tiny: bool = False) -> TrainSpec:
    """BERT base on masked words; padding is masked and not counted.

    109,514,298 parameters.

    Command: parity run --recipe bert_base:tiny
    """
    small = {"vocabulary": 61, "positions": 16, "tokens": 12, "width": 24, "depth": 2, "heads": 3}
    model = sequence.bert_model(**small, separator_id=1) if tiny else sequence.bert_model()
    vocabulary = 61 if tiny else 30522
    return TrainSpec(
        name="bert_base_tiny" if tiny else "bert_base",
        model=model,
        data=DataSpec(
            source=Synthetic(
                shape=model.input_shape,
                target="input",
                vocabulary=vocabulary,
                pad_id=0,
                shortest=4,
            ),
            train_samples=150 if tiny else 100_000,
            eval_samples=30 if tiny else 1_000,
            augment=(
                MaskTokens(
                    vocabulary=vocabulary,
                    mask_id=2 if tiny else 103,
                    spared=(0, 1) if tiny else (0, 101, 102),
                ),
            ),
        ),
        loss=SoftmaxCrossEntropy(ignore=-100),
        optimizer=AdamW(
            learning_rate=0.003 if tiny else 1e-4,
            weight_decay=0.01,
            clip_global_norm=1.0,
            decay_mask="matrices",
        ),
        schedule=WarmupCosine(warmup_steps=10 if tiny else 10_000),
        global_batch_size=16 if tiny else 256,
        steps=100 if tiny else 1_000_000,
    )


def lstm_classifier(tiny: bool = False) -> TrainSpec:
    """Two bidirectional LSTMs over a text, as in Keras's example on IMDB.

    2,757,761 parameters.

    Command: parity run --recipe lstm_classifier:tiny
    """
    model = (
        sequence.text_classifier_model(vocabulary=50, tokens=10, features=8, units=6, dropout=0.2)
        if tiny
        else sequence.text_classifier_model(dropout=0.2)
    )
    return TrainSpec(
        name="lstm_classifier_tiny" if tiny else "lstm_classifier",
        model=model,
        data=DataSpec(
            source=Synthetic(
                shape=model.input_shape,
                classes=2,
                vocabulary=50 if tiny else 20_000,
                pad_id=0,
                shortest=3,
            ),
            train_samples=150 if tiny else 25_000,
            eval_samples=30 if tiny else 1_000,
        ),
        loss=BinaryCrossEntropy(),
        optimizer=Adam(learning_rate=0.01 if tiny else 0.001),
        global_batch_size=16 if tiny else 32,
        steps=100 if tiny else 1_600,
    )


def gru_tagger(tiny: bool = False) -> TrainSpec:
    """A bidirectional GRU that gives each token one of 17 tags; padding is not counted.

    Command: parity run --recipe gru_tagger:tiny
    """
    model = (
        sequence.tagger_model(vocabulary=50, tokens=10, features=8, units=6, tags=5)
        if tiny
        else sequence.tagger_model()
    )
    return TrainSpec(
        name="gru_tagger_tiny" if tiny else "gru_tagger",
        model=model,
        data=DataSpec(
            source=Synthetic(
                shape=model.input_shape,
                target="tags",
                classes=5 if tiny else 17,
                vocabulary=50 if tiny else 10_000,
                pad_id=0,
                shortest=3,
            ),
            train_samples=150 if tiny else 12_500,
            eval_samples=30 if tiny else 1_000,
        ),
        loss=SoftmaxCrossEntropy(mask_padding=True),
        optimizer=Adam(learning_rate=0.01 if tiny else 0.001),
        global_batch_size=16 if tiny else 32,
        steps=100 if tiny else 4_000,
    )
