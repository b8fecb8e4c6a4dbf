"""Plain PyTorch trainings, written as its tutorials write them: no part of ours takes part."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parity_tests.peers import Arrays


def cnn() -> nn.Module:
    """Convolution, batch norm, pooling, linear."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.LeakyReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def mlp() -> nn.Module:
    """Flatten, linear, layer norm, linear."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 10))


class Recurrent(nn.Module):
    """An image read row by row: LSTM, GRU, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.gru = nn.GRU(12, 8, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.lstm(x.reshape(-1, 8, 8))
        x, _ = self.gru(x)
        return self.head(x[:, -1])


def train(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The loop of every tutorial on the batches in order; the state dict afterwards.

    facts: model, optimizer, options, batch_size.
    arrays: inputs (NCHW) and targets, one batch after the other, and the state dict's tensors.
    """
    model = {"cnn": cnn, "mlp": mlp, "recurrent": Recurrent}[facts["model"]]().double()
    tensors = {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}
    inputs, targets = tensors.pop("inputs"), tensors.pop("targets")
    missing = model.load_state_dict(tensors, strict=False)
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys), missing
    optimizer = getattr(torch.optim, facts["optimizer"])(model.parameters(), **facts["options"])
    loss_fn = nn.CrossEntropyLoss()
    for x, y in zip(inputs.split(facts["batch_size"]), targets.split(facts["batch_size"]), strict=True):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items() if tensor.ndim}
