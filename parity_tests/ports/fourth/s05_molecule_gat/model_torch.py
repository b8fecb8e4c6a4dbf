import torch
from torch import nn
from torch.nn import functional as F


def attend(h, bonds, receive, send):
    """h is (batch, atom, head, width)."""
    scores = (
        torch.einsum("bihd,hd->bhi", h, receive)[..., None]
        + torch.einsum("bjhd,hd->bhj", h, send)[..., None, :]
    )
    scores = F.leaky_relu(scores, 0.2).masked_fill(bonds[:, None] <= 0, -1e9)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), h)


class Molecules(nn.Module):
    def __init__(self, features=6, width=8, heads=3, rounds=2):
        super().__init__()
        total = heads * width
        self.heads = heads
        self.embed = nn.Linear(features, total)
        self.norms = nn.ModuleList(nn.LayerNorm(total, eps=1e-3) for _ in range(rounds))
        self.kernels = nn.ModuleList(nn.Linear(total, total, bias=False) for _ in range(rounds))
        self.receive = nn.ParameterList(nn.Parameter(0.3 * torch.randn(heads, width)) for _ in range(rounds))
        self.send = nn.ParameterList(nn.Parameter(0.3 * torch.randn(heads, width)) for _ in range(rounds))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(total)) for _ in range(rounds))
        self.gate = nn.Linear(total, 1)
        self.value = nn.Linear(total, 16)
        self.energy = nn.Linear(16, 1)

    def forward(self, atoms, bonds):
        h = self.embed(atoms)
        for norm, kernel, receive, send, bias in zip(
            self.norms, self.kernels, self.receive, self.send, self.biases, strict=True
        ):
            sent = kernel(norm(h)).unflatten(-1, (self.heads, -1))
            h = h + F.elu(attend(sent, bonds, receive, send).flatten(2) + bias)
        present = (bonds.amax(-1) > 0).to(h.dtype)
        pooled = torch.einsum(
            "bn,bn,bnc->bc", present, self.gate(h).sigmoid().squeeze(-1), F.elu(self.value(h))
        )
        return self.energy(pooled).squeeze(-1)
