import torch
import torch.nn as nn
import torch.nn.functional as F


class BatchNorm(nn.Module):
    """As Keras keeps it: the running variance is the biased one, momentum 0.99, epsilon 1e-3."""

    def __init__(self, c, affine=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c)) if affine else None
        self.bias = nn.Parameter(torch.zeros(c)) if affine else None
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_var", torch.ones(c))

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x, 0, correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(mean, 0.01)
                self.running_var.lerp_(var, 0.01)
        else:
            mean, var = self.running_mean, self.running_var
        x = (x - mean) * torch.rsqrt(var + 1e-3)
        return x if self.weight is None else torch.addcmul(self.bias, x, self.weight)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv1d(16, 24, 3), nn.ReLU()
        )
        self.projector = nn.Sequential(
            nn.Linear(24, 16, bias=False),
            BatchNorm(16),
            nn.ReLU(inplace=True),
            nn.Linear(16, 12, bias=False),
            BatchNorm(12, affine=False),
        )

    def forward(self, x):
        return self.projector(self.features(x.transpose(1, 2)).amax(-1))


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.predictor = nn.Sequential(nn.Linear(12, 6), nn.SiLU(), nn.Linear(6, 12))

    def forward(self, view1, view2):
        z1, z2 = self.encoder(view1), self.encoder(view2)
        p1, p2 = self.predictor(torch.cat([z1, z2])).chunk(2)  # no batch norm in there: one call
        return p1, p2, z1, z2


def distance(p, z):
    """-cos(p, z) by way of |p/|p| - z/|z||^2 = 2 - 2 cos."""
    return F.normalize(p, dim=-1).sub(F.normalize(z.detach(), dim=-1)).square().sum(-1).mean() / 2 - 1


def training_step(model, batch):
    while (isinstance(batch, (tuple, list)) and len(batch) == 1) or (
        isinstance(batch, (tuple, list)) and isinstance(batch[0], (dict, tuple, list))
    ):
        batch = batch[0]
    view1, view2 = (batch["view1"], batch["view2"]) if isinstance(batch, dict) else batch
    p1, p2, z1, z2 = model(view1, view2)
    return (distance(p1, z2) + distance(p2, z1)) / 2


def build():
    return SimSiam()
