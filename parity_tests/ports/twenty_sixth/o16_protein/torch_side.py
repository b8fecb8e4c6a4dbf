import torch
import torch.nn.functional as F
from torch import nn

LENGTH, AMINO, WIDTH, PLACES = 48, 21, 20, 4


class Residual(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 5, dilation=dilation, padding=2 * dilation)
        self.mix = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x):
        h = F.relu(self.ln(x)).transpose(1, 2)
        h = self.mix(F.relu(self.conv(h)))
        return x + h.transpose(1, 2)


class ProteinNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.amino = nn.Embedding(AMINO, WIDTH)
        self.blocks = nn.ModuleList([Residual(d) for d in (1, 2, 4)])
        self.attention = nn.Linear(WIDTH, 1, bias=False)
        self.fc = nn.Linear(WIDTH, 16)
        self.loc = nn.Linear(16, PLACES)
        self.sol = nn.Linear(16, 1)

    def forward(self, ids):
        keep = (ids != 0).unsqueeze(-1)
        h = self.amino(ids) * keep
        for block in self.blocks:
            h = block(h)
        score = self.attention(h).masked_fill(~keep, float("-inf"))
        pooled = (score.softmax(dim=1) * h).sum(dim=1)
        z = torch.tanh(self.fc(pooled))
        return {"loc": self.loc(z), "sol": self.sol(z)}


def build():
    return ProteinNet()
