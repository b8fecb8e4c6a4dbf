"""Plain PyTorch trainings, written as its tutorials write them: no part of ours takes part."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.common.execution.pass_context import Context
from parity.torch_impl.layers.random import keep_mask
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

    facts: model, optimizer, options, batch_size; low: a type to autocast a float32 model to; channels_last:
        whether images are laid out so.
    arrays: inputs (NCHW) and targets, one batch after the other, and the state dict's tensors.
    """
    low = facts.get("low")
    model = {"cnn": cnn, "mlp": mlp, "recurrent": Recurrent}[facts["model"]]().to(
        torch.float32 if low else torch.float64
    )
    if facts.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    tensors = {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}
    inputs, targets = tensors.pop("inputs"), tensors.pop("targets")
    missing = model.load_state_dict(tensors, strict=False)
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys), missing
    if facts.get("channels_last"):
        inputs = inputs.to(memory_format=torch.channels_last)
    optimizer = getattr(torch.optim, facts["optimizer"])(model.parameters(), **facts["options"])
    loss_fn = nn.CrossEntropyLoss()
    for x, y in zip(inputs.split(facts["batch_size"]), targets.split(facts["batch_size"]), strict=True):
        optimizer.zero_grad()
        with torch.autocast("cpu", getattr(torch, low)) if low else nullcontext():
            outputs = model(x)
        # What GPUs' autocast does with losses.
        loss = loss_fn(outputs.float() if low else outputs, y)
        loss.backward()
        optimizer.step()
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items() if tensor.ndim}


def dropped(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """An array through nn.Dropout and through our layers' mask, from the same seed, and once more."""
    x = torch.from_numpy(arrays["x"])
    torch.manual_seed(facts["seed"])
    theirs = nn.Dropout(facts["rate"])(x)
    torch.manual_seed(facts["seed"])
    context = Context(True, seed=None)
    ours, again = (x * keep_mask(x, context, "dropout", tuple(x.shape[1:]), facts["rate"]) for _ in range(2))
    return {"theirs": theirs.numpy(), "ours": ours.numpy(), "again": again.numpy()}


def scales(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The scale of a GradScaler after each step, of which some have gradients that are not finite."""
    del arrays
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=facts["growth_interval"])
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    found = []
    for finite in facts["finite"]:
        optimizer.zero_grad()
        scaler.scale((weight * (1.0 if finite else float("inf"))).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
    return {"scales": np.array(found)}
