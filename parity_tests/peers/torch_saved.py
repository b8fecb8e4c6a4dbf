"""Live modules written for another process, and paired as they are."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file
from torch import nn

import parity
from parity.torch_impl.external import saved
from parity_tests.external_models import pair_torch
from parity_tests.peers import Arrays


class Mixed(nn.Module):
    """Attributes of every kind that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.tied = self.first
        self.activation, self.clamp = F.relu, functools.partial(torch.clamp, max=0.7)
        self.register_buffer("scale", torch.tensor(0.3))
        self.factor = np.full(6, 1.5, np.float32)
        self.more = nn.ParameterList([nn.Parameter(torch.rand(6), requires_grad=False)])
        self.sizes: dict[str, Any] = {"a": (1, 2), "b": [None, True, 0.5, torch.float32, torch.Size([2])]}
        self.itself = [self.sizes]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.clamp(self.activation(self.first(x)) + self.tied(x))
        assert self.itself[0] is self.sizes
        return y * self.scale * torch.from_numpy(self.factor) + self.more[0]


class Held(nn.Module):
    """With what a file cannot hold."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind == "lambda":
            self.activation = lambda x: x
        elif kind == "generator":
            self.generator = torch.Generator()
        elif kind == "parametrized":
            self.first = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))
        elif kind == "reloaded":
            self.inner = type("Mixed", (nn.Module,), {"__module__": __name__})()
        else:
            self.act = self.forward


def _models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    rows = torch.rand(3, 6)
    attention = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, dropout=0.0)
    return {
        "mixed": (Mixed(), rows),
        "recurrent": (nn.LSTM(6, 4, 2, bidirectional=True), torch.rand(5, 3, 6)),
        "attention": (attention, torch.rand(3, 5, 6)),
        "norms": (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.GELU()), rows),
        "cnn": (pair_torch.CNN(), torch.rand(2, 3, 8, 8)),
    }


def round_trips(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Outputs 'NAME/before' and 'NAME/after' of each module in float64, in training and inference, one after the other."""
    del arrays
    found: Arrays = {}
    for name, (model, inputs) in _models().items():
        model, inputs = model.double(), inputs.double()
        path = Path(facts["folder"]) / f"{name}.safetensors"
        saved.save(model, path)
        again = saved.load(str(path))
        assert type(again) is type(model)
        assert [*again.state_dict()] == [*model.state_dict()]
        assert all(map(torch.equal, again.state_dict().values(), model.state_dict().values()))
        trained = [[n for n, p in each.named_parameters() if p.requires_grad] for each in (model, again)]
        assert trained[0] == trained[1]
        for key, each in (("before", model), ("after", again)):
            passes = [each.train(mode)(inputs) for mode in (True, False)]
            flat = [(one[0] if isinstance(one, tuple) else one).flatten() for one in passes]
            found[f"{name}/{key}"] = torch.cat(flat).detach().numpy()
    return found


def refused(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Raise what a module that cannot be written gives."""
    del arrays
    saved.save(Held(facts["model"]), Path(facts["folder"]) / "model.safetensors")
    return {}


def paired(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The verdict of a live module beside the Keras model of its name; see the test."""
    torch.manual_seed(99)
    model = getattr(pair_torch, facts["model"])()
    folder = Path(facts["folder"])
    data = {"x": arrays["x"], "y": arrays["y"].astype(int)}
    found = parity.pair(
        "parity_tests.external_models.pair_keras:cnn",
        model,
        data,
        weights="torch",
        steps=3,
        replicas=1,
        out=folder,
        quiet=True,
    )
    begins = load_file(folder / "weights.safetensors")
    live = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    same = [
        any(np.array_equal(each.ravel(), one.ravel()) for one in begins.values())
        for each in live.values()
        if each.ndim == 1
    ]
    kept = (folder / "torch_model.safetensors").is_file()
    return {
        "verdict": np.frombuffer(found.verdict.encode(), np.uint8),
        "begins": np.array(same),
        "kept": np.array([kept]),
    }
