"""PyTorch's stock models of sequences as a good engineer writes them, at a spec's initial values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import models
from parity.common.spec import TrainSpec
from parity.common.state.canonical import initial_state

Values = Callable[[str], Tensor]


class Block(nn.Module):
    """A pre-norm block with one product for queries, keys and values, as nanoGPT has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm_1(x)).split(x.shape[-1], dim=2)
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm_2(x)), approximate="tanh"))

    def take(self, values: Values) -> None:
        """The initial values of a block's canonical tensors."""
        attend, feed_forward = "attend/self_attention", "feed_forward"
        for name, norm in (("attend", self.norm_1), (feed_forward, self.norm_2)):
            _set(norm.weight, values(f"{name}/layer_norm/gamma"))
            _set(norm.bias, values(f"{name}/layer_norm/beta"))
        parts = ("query", "key", "value")
        _set(self.qkv.weight, torch.cat([values(f"{attend}/{part}_kernel") for part in parts], 1).t())
        _set(self.qkv.bias, torch.cat([values(f"{attend}/{part}_bias") for part in parts]))
        _set(self.out.weight, values(f"{attend}/output_kernel").t())
        _set(self.out.bias, values(f"{attend}/output_bias"))
        for name in ("widen", "narrow"):
            _set(getattr(self, name).weight, values(f"{feed_forward}/{name}/kernel").t())
            _set(getattr(self, name).bias, values(f"{feed_forward}/{name}/bias"))


class Gpt(nn.Module):
    """A GPT with its output tied to the embedding."""

    def __init__(self, spec: TrainSpec, values: Values) -> None:
        super().__init__()
        vocabulary, width, depth, heads = models.gpt_sizes(spec)
        (tokens,) = spec.model.input_shape
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        _set(self.tokens.weight, values("tokens/embedding"))
        _set(self.positions.weight, values("tokens/position_embedding/embedding"))
        for number, block in enumerate(self.blocks, 1):
            block.take(lambda name, number=number: values(f"tokens/block_{number}/{name}"))
        _set(self.norm.weight, values("tokens/layer_norm/gamma"))
        _set(self.norm.bias, values("tokens/layer_norm/beta"))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Recurrent(nn.Module):
    """Two recurrent layers over a text, and a class from the last token's state."""

    def __init__(self, kind: type[nn.RNNBase], spec: TrainSpec, values: Values) -> None:
        super().__init__()
        embedding, first, _, head = spec.model.layers
        self.embedding = nn.Embedding(embedding.vocabulary, embedding.features)
        self.layers = kind(embedding.features, first.units, num_layers=2, batch_first=True)
        self.head = nn.Linear(first.units, head.units)
        _set(self.embedding.weight, values("embedding/embedding"))
        ours = {
            "weight_ih": "kernel",
            "weight_hh": "recurrent_kernel",
            "bias_ih": "bias",
            "bias_hh": "recurrent_bias",
        }
        for number in (0, 1):
            for theirs, name in ours.items():
                value = values(f"{kind.__name__.lower()}_{number + 1}/{name}").t()
                if kind is nn.GRU:  # its gates are r, z, n
                    z, r, new = value.chunk(3)
                    value = torch.cat([r, z, new])
                _set(getattr(self.layers, f"{theirs}_l{number}"), value)
        _set(self.head.weight, values("head/kernel").t())
        _set(self.head.bias, values("head/bias"))

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(ids))[0][:, -1])


FAMILIES: Mapping[str, Callable[[TrainSpec, Values], nn.Module]] = {
    "gpt": Gpt,
    "lstm": partial(Recurrent, nn.LSTM),
    "gru": partial(Recurrent, nn.GRU),
}


def family(spec: TrainSpec) -> nn.Module:
    """The stock model of a spec of that name."""
    state = initial_state(spec)
    return FAMILIES[spec.name](spec, lambda name: torch.from_numpy(np.array(state[f"parameters/{name}"])))


def _set(parameter: nn.Parameter, value: Tensor) -> None:
    assert parameter.shape == value.shape, (parameter.shape, value.shape)
    parameter.data.copy_(value)
