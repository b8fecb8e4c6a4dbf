"""What the benchmarks train: specs whose every layer both frameworks ship, so that stock code can do the same.

Batch norm takes the statistics of its own replica, as stock `nn.BatchNorm2d` and `BatchNormalization` do,
and samples are in memory, as in the hand-written loops.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from parity.common.base import rng
from parity.common.base.errors import SpecError
from parity.common.data import sources
from parity.common.recipes.models.sequence import gpt2_model
from parity.common.spec import SGD, Adam, AdamW, LayerSpec, ModelSpec, TrainSpec, override
from parity.common.spec.base import Convention
from parity.common.spec.data import DataSpec
from parity.common.spec.layers import (
    GRU,
    LSTM,
    Activation,
    BatchNorm,
    Conv2D,
    Dense,
    Embedding,
    Flatten,
    GlobalAveragePool,
    MaxPool2D,
)
from parity.common.spec.optimizers import OptimizerBase
from parity.common.spec.sources import Npz, Synthetic

_IMAGES = "images.npz"
_SAMPLES = 1920


def compute_bound_cnn(convention: Convention = "keras") -> TrainSpec:
    """Six convolutions on 32x32 colour images, batch 96: a step is some 200 ms of arithmetic on one core."""
    filters = (32, 32, 64, 64, 128, 128)
    source = Npz(path=_IMAGES, inputs="inputs", targets="targets", divide_by=255.0)
    layers: list[LayerSpec] = []
    for number, count in enumerate(filters):
        if number in (2, 4):
            layers.append(MaxPool2D(size=2))
        layers += _convolution(count)
    return TrainSpec(
        name="compute_bound_cnn",
        convention=convention,
        model=ModelSpec(
            input_shape=(32, 32, 3),
            layers=(*layers, GlobalAveragePool(), Dense(units=10)),
        ),
        data=DataSpec(source=source, train_samples=_SAMPLES, eval_samples=0),
        optimizer=SGD(learning_rate=0.05, momentum=0.9),
        global_batch_size=96,
        steps=40,
        precision="float32",
    )


def overhead_bound_net(convention: Convention = "keras") -> TrainSpec:
    """One small convolution on the digits, batch 64: a step is a few ms, much of it not arithmetic."""
    return TrainSpec(
        name="overhead_bound_net",
        convention=convention,
        model=ModelSpec(
            input_shape=(8, 8, 1),
            layers=(*_convolution(16), MaxPool2D(size=2), Flatten(), Dense(units=10)),
        ),
        data=DataSpec(eval_samples=0),
        optimizer=SGD(learning_rate=0.05, momentum=0.9),
        global_batch_size=96,
        steps=400,
        precision="float32",
    )


def small_gpt(dropout: float) -> TrainSpec:
    """Two GPT-2 blocks of 128 features over 64 tokens, batch 16, with dropout where GPT-2 has it."""
    vocabulary, tokens = 256, 64
    return _of_texts(
        "small_gpt",
        "keras",
        gpt2_model(vocabulary, tokens, tokens, width=128, depth=2, heads=4, dropout=dropout),
        Synthetic(shape=(tokens,), target="next", vocabulary=vocabulary),
        (1024, 16),
        SGD(learning_rate=0.05, momentum=0.9),
    )


def gpt(convention: Convention = "keras") -> TrainSpec:
    """Four GPT-2 blocks of 256 features over 128 tokens, batch 8, AdamW, clipped."""
    vocabulary, tokens = 512, 128
    return _of_texts(
        "gpt",
        convention,
        gpt2_model(vocabulary, tokens, tokens, width=256, depth=4, heads=8, dropout=0.0),
        Synthetic(shape=(tokens,), target="next", vocabulary=vocabulary),
        (512, 8),
        AdamW(learning_rate=3e-4, clip_global_norm=1.0),
    )


def gpt_sizes(spec: TrainSpec) -> tuple[int, int, int, int]:
    """(vocabulary, features, blocks, heads) of a spec of `gpt`."""
    (tied,) = spec.model.layers
    blocks = [layer for layer in tied.layers if (layer.name or "").startswith("block_")]
    return tied.vocabulary, tied.features, len(blocks), blocks[0].layers[0].layers[1].heads


def _recurrent(name: str, kind: type[LSTM] | type[GRU], convention: Convention) -> TrainSpec:
    """Two recurrent layers of 128 units over texts of 100 tokens, batch 32, Adam."""
    vocabulary, tokens, units = 2000, 100, 128
    layers = (
        Embedding(vocabulary=vocabulary, features=units),
        kind(units=units, return_sequences=True),
        kind(units=units),
        Dense(name="head", units=10),
    )
    return _of_texts(
        name,
        convention,
        ModelSpec(input_shape=(tokens,), inputs="tokens", layers=layers),
        Synthetic(shape=(tokens,), classes=10, vocabulary=vocabulary),
        (1024, 32),
        Adam(learning_rate=1e-3),
    )


def lstm(convention: Convention = "keras") -> TrainSpec:
    """A classifier of texts by two LSTMs."""
    return _recurrent("lstm", LSTM, convention)


def gru(convention: Convention = "keras") -> TrainSpec:
    """A classifier of texts by two GRUs."""
    return _recurrent("gru", GRU, convention)


def _of_texts(
    name: str,
    convention: Convention,
    model: ModelSpec,
    source: Synthetic,
    sizes: tuple[int, int],
    optimizer: OptimizerBase,
) -> TrainSpec:
    """sizes: the samples, and those of a batch."""
    samples, batch = sizes
    return TrainSpec(
        name=name,
        convention=convention,
        model=model,
        data=DataSpec(source=source, train_samples=samples, eval_samples=0),
        optimizer=optimizer,
        global_batch_size=batch,
        steps=40,
        precision="float32",
    )


def _convolution(filters: int) -> tuple[LayerSpec, ...]:
    return (
        Conv2D(filters=filters, padding=1, use_bias=False),
        BatchNorm(statistics="per_replica"),
        Activation(function="relu"),
    )


SPECS: dict[str, Callable[[Convention], TrainSpec]] = {
    "compute_bound_cnn": compute_bound_cnn,
    "overhead_bound_net": overhead_bound_net,
    "gpt": gpt,
    "lstm": lstm,
    "gru": gru,
}


def get(name: str, convention: Convention = "keras") -> TrainSpec:
    """A spec by name, with the details of batch norm as the named framework ships them.

    Its samples are made where they are not there yet.

    Raises:
        SpecError: no such spec.
    """
    if name not in SPECS:
        raise SpecError(f"unknown benchmark spec {name!r}; known: {', '.join(SPECS)}")
    spec = SPECS[name](convention)
    source = spec.data.source
    if isinstance(source, Synthetic):
        # In memory, as in the hand-written loops; they are made from their ids otherwise, a batch at a time.
        path = _prepared(
            f"{name}.npz", lambda: sources.load_for(spec)[0].rows(np.arange(spec.data.train_samples))
        )
        made = Npz(path=str(path), inputs="inputs", targets="targets")
        return spec.model_copy(update={"data": spec.data.model_copy(update={"source": made})})
    if isinstance(source, Npz):
        return override(spec, [f"data.source.path={_prepared(_IMAGES, _images)}"])
    return spec


def _images() -> tuple[np.ndarray, np.ndarray]:
    shape = (_SAMPLES, 32, 32, 3)
    inputs = (256 * rng.uniform(rng.derive_key(0, "benchmark images"), shape)).astype(np.uint8)
    return inputs, np.arange(_SAMPLES) % 10


def _prepared(name: str, make: Callable[[], Sequence[np.ndarray]]) -> Path:
    """A file of samples: in the machine's place for temporary files, so that it is made once."""
    folder = Path(tempfile.gettempdir()) / f"parity-benchmarks-{os.getuid()}"
    path = folder / name
    if not path.exists():
        folder.mkdir(exist_ok=True)
        inputs, targets = make()
        # Whole, or not there: several processes may come here at once.
        handle, part = tempfile.mkstemp(suffix=".npz", dir=folder)
        os.close(handle)
        # Compressed, since what lies as it is would be mapped and converted batch by batch.
        np.savez_compressed(part, inputs=inputs, targets=targets)
        os.replace(part, path)
    return path
