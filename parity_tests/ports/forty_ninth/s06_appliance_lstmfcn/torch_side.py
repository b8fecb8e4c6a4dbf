import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


class ChannelGate(nn.Module):
    def __init__(self, ch, ratio=4):
        super().__init__()
        self.down = nn.Conv1d(ch, ch // ratio, 1, bias=False)
        self.up = nn.Conv1d(ch // ratio, ch, 1, bias=False)

    def forward(self, x):
        s = F.adaptive_avg_pool1d(x, 1)
        return x * torch.sigmoid(self.up(F.relu(self.down(s))))


class ConvLayer(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.pad = ((k - 1) // 2, k // 2)
        self.conv = nn.Conv1d(cin, cout, k)
        self.norm = nn.BatchNorm1d(cout, eps=1e-3, momentum=0.1)

    def forward(self, x):
        return F.relu(self.norm(self.conv(F.pad(x, self.pad))))


class Recurrence(nn.Module):
    """LSTM with a single bias, last state."""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.x2g = nn.Linear(n_in, 4 * n_hidden)
        self.h2g = nn.Linear(n_hidden, 4 * n_hidden, bias=False)

    def forward(self, seq):
        gates_x = self.x2g(seq)
        h = c = seq.new_zeros(seq.size(0), self.h2g.in_features)
        for gx in gates_x.unbind(1):
            i, f, g, o = (gx + self.h2g(h)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class MLSTMFCN(nn.Module):
    def __init__(self, steps=64, channels=3, n_classes=7):
        super().__init__()
        self.fcn = nn.Sequential(
            ConvLayer(channels, 16, 8),
            ChannelGate(16),
            ConvLayer(16, 24, 5),
            ChannelGate(24),
            ConvLayer(24, 16, 3),
        )
        self.lstm = Recurrence(steps, 12)
        self.which = nn.Linear(12 + 16, n_classes)
        self.watts = nn.Linear(12 + 16, 1)

    def forward(self, signal):
        x = signal.transpose(1, 2)
        z = torch.cat([self.lstm(x), self.fcn(x).mean(2)], dim=1)
        return {"appliance": self.which(z), "power": F.softplus(self.watts(z))}


def build():
    return MLSTMFCN()


class RMSpropTF(torch.optim.Optimizer):
    """RMSprop as TensorFlow has it: epsilon below the root, rate inside the momentum."""

    def __init__(self, params, lr=1e-3, alpha=0.9, momentum=0.0, eps=1e-7):
        super().__init__(params, dict(lr=lr, alpha=alpha, momentum=momentum, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["square_avg"] = torch.zeros_like(p)
                    state["buf"] = torch.zeros_like(p)
                sq, buf = state["square_avg"], state["buf"]
                sq.mul_(group["alpha"]).addcmul_(p.grad, p.grad, value=1 - group["alpha"])
                buf.mul_(group["momentum"]).add_(group["lr"] * p.grad / (sq + group["eps"]).sqrt())
                p.sub_(buf)


def optimizer(params):
    opt = RMSpropTF(params, lr=2e-3, alpha=0.9, momentum=0.5, eps=1e-3)
    return opt, LambdaLR(opt, lambda t: 1.0 if t <= 11 else 0.5 if t <= 29 else 0.2)
