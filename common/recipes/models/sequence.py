"""Models of token sequences and of tables."""

from __future__ import annotations

from typing import Any

from parity.common.spec import LayerSpec, ModelSpec
from parity.common.spec.layers import (
    GRU,
    LSTM,
    Activation,
    Add,
    Concatenate,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    LayerNorm,
    PositionEmbedding,
    Residual,
    SegmentEmbedding,
    SelfAttention,
    Sequential,
    Slice,
    TiedEmbedding,
)

NORMAL = "normal_0.02"
_KERNELS: dict[str, Any] = {"kernel_initializer": NORMAL, "bias_initializer": "zeros"}


def transformer_block(
    number: int,
    attend: tuple[LayerSpec, ...],
    feed_forward: tuple[LayerSpec, ...],
    after: tuple[LayerSpec, ...] = (),
    drop_rate: float = 0.0,
) -> Sequential:
    """Two residual branches, each with the layers `after` behind it; `drop_rate`: of the branches."""
    branches = [
        Residual(name=name, drop_rate=drop_rate, layers=layers)
        for name, layers in (("attend", attend), ("feed_forward", feed_forward))
    ]
    layers = (layer for branch in branches for layer in (branch, *after))
    return Sequential(name=f"block_{number}", layers=tuple(layers))


def gpt2_model(
    vocabulary: int = 50257,
    positions: int = 1024,
    tokens: int = 1024,
    width: int = 768,
    depth: int = 12,
    heads: int = 12,
    dropout: float = 0.1,
) -> ModelSpec:
    """GPT-2: Radford et al. 2019. Pre-norm blocks, GELU by tanh, the output tied to the embedding."""
    norm, drop = LayerNorm(epsilon=1e-5), Dropout(rate=dropout)
    attention = SelfAttention(heads=heads, causal=True, dropout=dropout, **_KERNELS)
    branches = (norm, attention, drop), (norm, *_feed_forward(width, "gelu_tanh"), drop)
    layers = (
        PositionEmbedding(positions=positions, initializer=NORMAL),
        drop,
        *(transformer_block(number + 1, *branches) for number in range(depth)),
        norm,
    )
    return _of_tokens(tokens, None, _tied(vocabulary, width, *layers))


def bert_model(
    vocabulary: int = 30522,
    positions: int = 512,
    tokens: int = 512,
    width: int = 768,
    depth: int = 12,
    heads: int = 12,
    dropout: float = 0.1,
    pad_id: int = 0,
    separator_id: int | None = 102,
) -> ModelSpec:
    """BERT with its masked-word head: Devlin et al. 2019. Post-norm blocks, padding masked."""
    norm, drop = LayerNorm(epsilon=1e-12), Dropout(rate=dropout)
    attention = SelfAttention(heads=heads, masked=True, dropout=dropout, **_KERNELS)
    branches = (attention, drop), (*_feed_forward(width, "gelu"), drop)
    segments = SegmentEmbedding(features=width, separator_id=separator_id, initializer=NORMAL)
    layers = (
        PositionEmbedding(positions=positions, initializer=NORMAL),
        LayerNorm(name="embedding_norm", epsilon=1e-12),
        drop,
        *(transformer_block(number + 1, *branches, after=(norm,)) for number in range(depth)),
        Dense(name="head", units=width, **_KERNELS),
        Activation(function="gelu"),
        LayerNorm(name="head_norm", epsilon=1e-12),
    )
    tied = _tied(vocabulary, width, *layers, output_bias=True, beside=(segments,))
    return _of_tokens(tokens, pad_id, tied)


def _of_tokens(tokens: int, pad_id: int | None, *layers: LayerSpec) -> ModelSpec:
    return ModelSpec(input_shape=(tokens,), inputs="tokens", pad_id=pad_id, layers=layers)


def _tied(vocabulary: int, width: int, *layers: LayerSpec, **more: Any) -> TiedEmbedding:
    sizes = {"vocabulary": vocabulary, "features": width}
    return TiedEmbedding(name="tokens", initializer=NORMAL, layers=layers, **sizes, **more)


def _feed_forward(width: int, function: str) -> tuple[LayerSpec, ...]:
    widen, narrow = (
        Dense(name=name, units=units, **_KERNELS) for name, units in (("widen", 4 * width), ("narrow", width))
    )
    return widen, Activation.parse({"function": function}), narrow


def text_classifier_model(
    vocabulary: int = 20000, tokens: int = 200, features: int = 128, units: int = 64, dropout: float = 0.0
) -> ModelSpec:
    """Two bidirectional LSTMs and one logit, as in Keras's example on IMDB; padding is passed over."""
    return _of_tokens(
        tokens,
        0,
        Embedding(vocabulary=vocabulary, features=features),
        LSTM(units=units, direction="both", return_sequences=True, masked=True),
        *((Dropout(rate=dropout),) if dropout else ()),
        LSTM(units=units, direction="both", masked=True),
        Dense(name="head", units=1),
    )


def tagger_model(
    vocabulary: int = 10000, tokens: int = 128, features: int = 128, units: int = 128, tags: int = 17
) -> ModelSpec:
    """A bidirectional GRU with a tag for each token; 17 are the universal parts of speech."""
    return _of_tokens(
        tokens,
        0,
        Embedding(vocabulary=vocabulary, features=features),
        Dropout(name="word_dropout", rate=0.2),
        GRU(units=units, direction="both", return_sequences=True, masked=True),
        Dropout(name="state_dropout", rate=0.2),
        Dense(name="head", units=tags),
    )


def wide_and_deep_model(
    numbers: int = 6,
    categories: tuple[int, ...] = (9, 16, 7, 15, 6, 5, 2, 42),
    features: int = 8,
    hidden: tuple[int, ...] = (100, 50),
) -> ModelSpec:
    """Wide and deep: Cheng et al. 2016. A table of number columns, then category columns as codes.

    The wide part is linear in the numbers and in one weight for each category; the deep part a dense
    network on the numbers and an embedding of each category. The default columns are those of the
    census income data.
    """
    number_columns = Slice(name="numbers", start=0, stop=numbers)

    def column(index: int) -> Slice:
        return Slice(start=numbers + index, stop=numbers + index + 1)

    def embedded(index: int, size: int, width: int) -> Sequential:
        return Sequential(
            name=f"category_{index + 1}",
            layers=(column(index), Embedding(vocabulary=size, features=width), Flatten()),
        )

    wide = Add(
        name="wide",
        layers=(
            Sequential(name="numbers", layers=(number_columns, Dense(units=1))),
            *(embedded(index, size, 1) for index, size in enumerate(categories)),
        ),
    )
    deep = Sequential(
        name="deep",
        layers=(
            Concatenate(
                layers=(number_columns, *(embedded(i, size, features) for i, size in enumerate(categories)))
            ),
            *(
                layer
                for number, units in enumerate(hidden)
                for layer in (
                    Dense(name=f"hidden_{number + 1}", units=units),
                    Activation(name=f"relu_{number + 1}", function="relu"),
                )
            ),
            Dense(name="head", units=1),
        ),
    )
    return ModelSpec(input_shape=(numbers + len(categories),), layers=(Add(layers=(wide, deep)),))
