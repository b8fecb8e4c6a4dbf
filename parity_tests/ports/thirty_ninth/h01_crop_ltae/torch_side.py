import math

import torch
from torch import nn

N_BANDS, N_CLASSES = 6, 6


def sinusoids(n_positions: int, d: int, T: float = 1000.0) -> torch.Tensor:
    freq = torch.exp(torch.arange(0, d, 2).float() * (-math.log(T) / d))
    phase = torch.arange(n_positions).float().unsqueeze(1) * freq
    return torch.stack([phase.sin(), phase.cos()], dim=2).flatten(1)


class PixelEncoder(nn.Module):
    """(B, T, C) -> (B, d, T)"""

    def __init__(self, dims=(N_BANDS, 24, 32)):
        super().__init__()
        self.blocks = nn.ModuleList()
        for a, b in zip(dims[:-1], dims[1:]):
            self.blocks.append(
                nn.Sequential(
                    nn.Conv1d(a, b, kernel_size=1, bias=False),
                    nn.BatchNorm1d(b, eps=1e-3, momentum=0.01),
                    nn.ReLU(inplace=True),
                )
            )
        self.register_buffer("mean", torch.tensor([0.09, 0.11, 0.12, 0.28, 0.22, 0.15]))
        self.register_buffer("std", torch.tensor([0.04, 0.04, 0.06, 0.10, 0.08, 0.07]))

    def forward(self, x):
        x = ((x - self.mean) / self.std).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return x


class LTAE(nn.Module):
    def __init__(self, d_in=32, n_head=4, d_k=8):
        super().__init__()
        self.n_head, self.d_k = n_head, d_k
        self.inconv = nn.GroupNorm(n_head, d_in, eps=1e-3)
        self.Q = nn.Parameter(torch.empty(n_head, d_k).normal_(0, math.sqrt(1 / d_k)))
        self.fc_k = nn.Linear(d_in, n_head * d_k)
        self.register_buffer("pe", sinusoids(367, d_in), persistent=False)

    def forward(self, x, doy):
        B, d, T = x.shape
        x = self.inconv(x).transpose(1, 2) + self.pe[doy.long()]
        k = self.fc_k(x).view(B, T, self.n_head, self.d_k).permute(0, 2, 1, 3)
        att = torch.matmul(k, self.Q.unsqueeze(-1)).squeeze(-1) * self.d_k**-0.5
        att = att.masked_fill((doy == 0).unsqueeze(1), float("-inf")).softmax(-1)
        v = torch.stack(x.split(d // self.n_head, dim=-1), dim=1)
        return (att.unsqueeze(2) @ v).reshape(B, d)


class CropNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.spatial = PixelEncoder()
        self.temporal = LTAE()
        self.decoder = nn.Sequential(
            nn.Linear(32, 32),
            nn.BatchNorm1d(32, eps=1e-3, momentum=0.1),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(32, N_CLASSES),
        )

    def forward(self, x, doy):
        return self.decoder(self.temporal(self.spatial(x), doy))


def build():
    return CropNet()
