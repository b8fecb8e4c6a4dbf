import torch
import torch.nn.functional as F
from torch import nn


def unit(x):
    return x * torch.rsqrt(x.square().sum(1, keepdim=True).clamp_min(1e-12))


class Head(nn.Sequential):
    def __init__(self, width, dim):
        super().__init__(nn.Linear(width, 20), nn.ReLU(), nn.Linear(20, dim))


class SonarMoCo(nn.Module):
    def __init__(self, dim=10, size=64, momentum=0.96, temperature=0.2, habitats=5):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        table = torch.sin(
            1.7 * torch.arange(size * dim, dtype=torch.get_default_dtype()).view(size, dim) + 0.3
        )
        self.register_buffer("bank", unit(table))
        self.query_head = Head(24, dim)
        self.key_head = Head(24, dim).requires_grad_(False)
        self.key_head.load_state_dict(self.query_head.state_dict())
        self.linear_probe = nn.Linear(24, habitats)
        self.backbone = nn.Sequential()
        cin = 1
        for cout, stride in ((8, 1), (12, 2), (16, 1), (24, 2)):
            self.backbone.append(
                nn.Sequential(
                    nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.GroupNorm(4, cout), nn.ReLU()
                )
            )
            cin = cout

    def features(self, tiles):
        return self.backbone(tiles.unsqueeze(1)).mean((2, 3))

    def forward(self, inputs):
        return self.linear_probe(self.features(inputs["view_a"]))

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.key_head.parameters(), self.query_head.parameters()):
            slow.lerp_(fast, 1.0 - self.momentum)

    @torch.no_grad()
    def push(self, keys):
        self.bank = torch.cat((keys, self.bank))[: self.bank.size(0)]


def step(model, batch):
    inputs, habitats = batch
    model.follow()
    a, b = model.features(torch.cat((inputs["view_a"], inputs["view_b"]))).chunk(2)
    q = unit(model.query_head(a))
    k = unit(model.key_head(b))
    positive = torch.linalg.vecdot(q, k)
    logits = torch.cat((positive.unsqueeze(1), q @ model.bank.T), dim=1) / model.temperature
    contrast = F.cross_entropy(logits, logits.new_zeros(len(q), dtype=torch.long))
    loss = contrast + 0.5 * F.cross_entropy(model.linear_probe(a), habitats.long())
    model.push(k.detach())
    return loss


def build():
    return SonarMoCo()
