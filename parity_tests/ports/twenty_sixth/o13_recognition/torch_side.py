import torch
import torch.nn.functional as F
from torch import nn

HEIGHT, WIDTH, SYMBOLS = 16, 48, 11


class BatchNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(c))
        self.beta = nn.Parameter(torch.zeros(c))
        self.register_buffer("moving_mean", torch.zeros(c))
        self.register_buffer("moving_var", torch.ones(c))

    def forward(self, x):
        x = x.movedim(1, -1)
        if self.training:
            mean = x.mean((0, 1, 2))
            var = ((x - mean) ** 2).mean((0, 1, 2))
            self.moving_mean.copy_(0.99 * self.moving_mean + 0.01 * mean.detach())
            self.moving_var.copy_(0.99 * self.moving_var + 0.01 * var.detach())
        else:
            mean, var = self.moving_mean, self.moving_var
        return (self.gamma * (x - mean) / (var + 1e-3).sqrt() + self.beta).movedim(-1, 1)


class LSTMScan(nn.Module):
    def __init__(self, n_in, units, reverse=False):
        super().__init__()
        self.wx = nn.Linear(n_in, 4 * units)
        self.wh = nn.Linear(units, 4 * units, bias=False)
        self.units, self.reverse = units, reverse

    def forward(self, x):
        n, steps, _ = x.shape
        h = c = x.new_zeros(n, self.units)
        out = [None] * steps
        gates_x = self.wx(x)
        for t in reversed(range(steps)) if self.reverse else range(steps):
            i, f, g, o = (gates_x[:, t] + self.wh(h)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out[t] = h
        return torch.stack(out, dim=1)


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1, bias=False)
        self.bn = BatchNorm(12)
        self.columns = nn.Linear((HEIGHT // 4) * 12, 24)
        self.left = LSTMScan(24, 16)
        self.right = LSTMScan(24, 16, reverse=True)
        self.symbols = nn.Linear(32, SYMBOLS)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.conv1(x.permute(0, 3, 1, 2))), 2)
        h = F.max_pool2d(F.relu(self.bn(self.conv2(h))), (2, 1))
        h = h.permute(0, 3, 2, 1).flatten(2)
        h = F.relu(self.columns(h))
        return self.symbols(torch.cat([self.left(h), self.right(h)], dim=-1))


def ctc(output, target):
    logp = output.log_softmax(-1).transpose(0, 1)
    frames = torch.full((output.shape[0],), output.shape[1], dtype=torch.long)
    lengths = (target != 0).sum(1)
    return F.ctc_loss(logp, target, frames, lengths, blank=0, reduction="none").mean()


def build():
    return CRNN()
