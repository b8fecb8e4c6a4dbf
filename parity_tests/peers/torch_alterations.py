"""What is tried of the calls of a model: of every spelling of a call it can be listed, and each way can be run."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.torch_impl.external.alterations import altered
from parity_tests.peers import Arrays


class Calls(nn.Module):
    """Calls with arguments by place and by name, of masks, of scalars, in place, of packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(4, 3, batch_first=True), nn.GRU(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> None:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4]), batch_first=True)
        _, states = self.lstm(packed)
        self.lstm(x, states)
        self.gru(x)
        self.gru(packed)
        scalars = torch.stack([x.sum(), x.mean()])
        torch.cat([scalars, scalars])
        torch.cat([x, x], -1)
        blocks = torch.ones(2, 8, 3, 3)
        F.pixel_shuffle(blocks, upscale_factor=2)
        F.pixel_shuffle(blocks[0], 2)
        torch.zeros(2, 3, 3).transpose_(1, 2)
        torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
        torch.meshgrid([torch.arange(3), torch.arange(4)], indexing="xy")
        torch.bucketize(x, torch.tensor([0.0, 1.0]), right=True)
        torch.searchsorted(torch.tensor([0.0, 1.0]), x)
        torch.cumsum(x, -1)
        x.cumsum(dim=1)
        x.cumprod(1)
        chosen = torch.tensor([0, 1])
        for index in ((chosen, chosen), (x > 0), (slice(None), chosen), (..., chosen), (0, None, chosen)):
            x[index]
        x.repeat(1, 2, 1)
        x.repeat((1, 2, 1))
        x.repeat_interleave(2, dim=1)
        x.repeat_interleave(torch.tensor([1, 2, 1, 1, 1]), dim=1)
        x.repeat_interleave(2)
        torch.mul(x > 0, x)
        torch.mul(2, x)
        torch.log(x.abs() + 1)
        torch.clamp(input=x, min=0.0)
        x.permute((0, 2, 1))
        torch.permute(x, dims=(0, 2, 1))
        x.transpose(dim0=1, dim1=2)
        F.normalize(x)
        F.normalize(x, 2, 1)
        F.mse_loss(x[:, 0, :1], x[:, 0, 0])
        F.mse_loss(input=x, target=x)
        changed = F.relu(x + 1, inplace=True) + x
        changed += F.relu(x)
        changed.mul_(2)
        torch.add(x, x, alpha=2)
        x.view(2, -1).unflatten(-1, (5, 4)).flatten(1)


def listed(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """How many calls, ways, and ways that end the pass, since another shape does not fit what follows."""
    model, x = Calls().double(), torch.from_numpy(arrays["x"])

    def passed(wanted: dict[int, str]) -> list[dict[str, Any]]:
        with warnings.catch_warnings(), altered(model, wanted, lambda: 0) as altering:
            warnings.simplefilter("ignore")
            model(x)
        return altering.found

    found, ended = passed({}), 0
    ways = [(number, way) for number, call in enumerate(found) for way in call["ways"]]
    for number, way in ways:
        try:
            passed({number: way})
        except RuntimeError:
            ended += 1
    return {"counts": np.array([len(found), len(ways), ended])}
