import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden=9, heads=2):
        super().__init__()
        self.instance = nn.Sequential(
            nn.Linear(7, 18),
            nn.ReLU(),
            nn.LayerNorm(18, eps=1e-3),
            nn.Linear(18, 12),
            nn.ReLU(),
            nn.Dropout(0.2),
        )
        self.attend_v = nn.Linear(12, hidden)
        self.attend_u = nn.Linear(12, hidden)
        self.attend_w = nn.Parameter(torch.randn(heads, hidden) * 0.3)
        self.risk = nn.Linear(heads * 12, 1)

    def forward(self, bag, present):
        h = self.instance(bag)
        gated = torch.tanh(self.attend_v(h)) * torch.sigmoid(self.attend_u(h))
        scores = torch.einsum("bnd,kd->bkn", gated, self.attend_w)
        scores = scores.masked_fill(~present.bool().unsqueeze(1), -torch.inf)
        z = torch.einsum("bkn,bnd->bkd", torch.softmax(scores, dim=-1), h)
        return self.risk(z.reshape(len(bag), -1))
