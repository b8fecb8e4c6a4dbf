"""The same in torch, which rounds in other steps. `wrong`: another scale, by a tenth of a per cent."""

import torch
from torch import nn


class Net(nn.Module):
    scale = 0.7

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.FloatTensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
        self.register_buffer("gain", 1 / torch.tensor(self.scale, dtype=torch.float32))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(((x - self.mean) * self.gain - 0.3) / 0.2**0.5)


class Wrong(Net):
    scale = 0.7007


def wrong() -> Net:
    return Wrong()
