"""A trained model to be called: loaded from a run or a checkpoint of either framework, without the trainer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from parity.common.checkpoint.weights import Weights, read_weights
from parity.common.spec import Placement
from parity.torch_impl.model import Model


class _InferenceModel(nn.Module):
    """outputs = model(inputs), as the run's evaluation computes them.

    Inputs are a batch of the spec's `input_shape`: images are (batch, height, width, channels), tokens
    (batch, tokens). There is no training mode: dropout drops nothing and batch norm keeps its statistics.

    spec: what was trained. step: how many steps of it.
    """

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.spec, self.step = weights.spec, weights.step
        self._model = Model(weights.spec, Placement(framework="torch", strategy="single", device="cpu"))
        self.root = self._model.module
        with torch.no_grad():
            native = self._model.native(weights.tensors)
            for name, tensor in self._model.tensors.items():
                tensor.live.copy_(tensor.shard(native[name]))
        self.requires_grad_(False)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, ...) of inputs (batch, ...): numbers of any type, or integer tokens."""
        inputs = inputs.to(getattr(torch, self.spec.input_dtype))
        ids = torch.arange(len(inputs), device=inputs.device)
        return self._model(inputs, self._model.context(False, inputs, ids))


def load(path: Path | str) -> nn.Module:
    """The model of a run (its final state, else its latest whole checkpoint), or of one checkpoint.

    Raises:
        ParityError: in one line, what is missing or damaged.
    """
    return model_of(read_weights(Path(path)))


def model_of(weights: Weights) -> nn.Module:
    """The model with given weights."""
    return _InferenceModel(weights)
