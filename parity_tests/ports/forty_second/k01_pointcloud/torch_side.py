import torch
import torch.nn.functional as F
from torch import nn


class PerPoint(nn.Module):
    """Linear + BN + ReLU on every point: (B, N, C) is folded to (B*N, C)."""

    def __init__(self, cin, cout):
        super().__init__()
        self.norm = nn.BatchNorm1d(cout, eps=1e-3, momentum=0.01)
        self.lin = nn.Linear(cin, cout, bias=False)

    def forward(self, p):
        b, n, _ = p.shape
        return self.norm(self.lin(p.flatten(0, 1))).clamp_min(0.0).unflatten(0, (b, n))


class Aligner(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Sequential(PerPoint(3, 16), PerPoint(16, 32))
        self.regress = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 9))
        nn.init.normal_(self.regress[2].weight, std=0.02)
        nn.init.zeros_(self.regress[2].bias)

    def forward(self, p):
        delta = self.regress(self.points(p).amax(1)).view(-1, 3, 3)
        return torch.baddbmm(p, p, delta)  # p (I + delta)


class CloudNet(nn.Module):
    def __init__(self, n_classes=4):
        super().__init__()
        self.align = Aligner()
        self.stem = PerPoint(4, 24)
        self.wide = PerPoint(24, 48)
        # the fusing layer acts on [local | global]; the global half is the same for all points
        self.mix = nn.Linear(24 + 48, 32)
        self.query = nn.Linear(32, 1)
        self.classifier = nn.Sequential(
            nn.LayerNorm(64, eps=1e-3), nn.Linear(64, 32), nn.ELU(), nn.Linear(32, n_classes)
        )

    def forward(self, cloud):
        p = cloud - cloud.mean(1, keepdim=True)
        p = p / p.pow(2).sum(-1).amax(1).sqrt().view(-1, 1, 1)
        p = self.align(p)
        p = torch.cat((p, torch.linalg.vector_norm(p, dim=-1, keepdim=True)), -1)
        local = self.stem(p)
        glob = self.wide(local).amax(1)
        w_local, w_glob = self.mix.weight.split((24, 48), dim=1)
        h = torch.tanh(F.linear(local, w_local) + F.linear(glob, w_glob, self.mix.bias).unsqueeze(1))
        a = self.query(h).softmax(1)
        pooled = torch.bmm(a.transpose(1, 2), h).squeeze(1)
        spread = (h.var(1, correction=0) + 1e-4).sqrt()
        return self.classifier(torch.cat((pooled, spread), -1))


def build():
    return CloudNet()
