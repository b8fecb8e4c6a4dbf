import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    """Batch norm over (batch, time) that keeps the biased moving variance."""

    def __init__(self, c, momentum=0.9, eps=1e-3):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.gamma = nn.Parameter(torch.ones(c, 1))
        self.beta = nn.Parameter(torch.zeros(c, 1))
        self.register_buffer("moving_mean", torch.zeros(c, 1))
        self.register_buffer("moving_var", torch.ones(c, 1))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                mean = x.mean((0, 2)).unsqueeze(1)
                var = x.var((0, 2), unbiased=False).unsqueeze(1)
                self.moving_mean.lerp_(mean, self.momentum)
                self.moving_var.lerp_(var, self.momentum)
        else:
            mean, var = self.moving_mean, self.moving_var
        return (x - mean) * torch.rsqrt(var + self.eps) * self.gamma + self.beta


class CausalConv(nn.Module):
    def __init__(self, cin, cout, width, dilation=1):
        super().__init__()
        self.left = (width - 1) * dilation
        self.conv = nn.Conv1d(cin, cout, width, dilation=dilation, bias=False)
        self.norm = Norm(cout)

    def forward(self, x):
        return self.norm(self.conv(F.pad(x, (self.left, 0))))


class Net(nn.Module):
    def __init__(self, c=10):
        super().__init__()
        self.stem = CausalConv(2, c, 5)
        self.blocks = nn.ModuleList(
            nn.Sequential(CausalConv(c, c, 3, d), nn.ReLU(), CausalConv(c, c, 1)) for d in (2, 4)
        )
        self.fc = nn.Linear(2 * c, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, leads):
        x = F.relu(self.stem(leads.transpose(1, 2)))
        for block in self.blocks:
            x = F.relu(x + block(x))
        x = torch.cat([x.mean(-1), x.amax(-1)], dim=1)
        return self.out(F.relu(self.fc(x)))
