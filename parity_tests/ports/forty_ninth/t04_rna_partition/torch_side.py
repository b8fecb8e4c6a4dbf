import math

import torch
from torch import nn


class Folder(nn.Module):
    min_loop = 3

    def __init__(self, emb=8, motif=16, hidden=12, width=16):
        super().__init__()
        self.pair_bias = nn.Parameter(torch.zeros(16))
        self.nucleotide = nn.Embedding(4, emb)
        self.conv = nn.Conv1d(emb, motif, 3, padding=1)
        self.rnn = nn.GRU(motif, hidden, batch_first=True, bidirectional=True)
        self.unpaired = nn.Linear(2 * hidden, 1)
        self.five = nn.Linear(2 * hidden, width)
        self.three = nn.Linear(2 * hidden, width)

    def forward(self, bases):
        bases = bases.long()
        x = self.conv(self.nucleotide(bases).mT)
        h, _ = self.rnn(nn.functional.silu(x).mT)
        five = self.five(h) * h.new_tensor(self.five.out_features).rsqrt()
        pairs = five @ self.three(h).mT
        pairs = pairs + self.pair_bias[bases.unsqueeze(-1) * 4 + bases.unsqueeze(-2)]
        return pairs.triu(self.min_loop + 1) + torch.diag_embed(self.unpaired(h).squeeze(-1))


def partition(scores, min_loop=Folder.min_loop):
    """chart[i, j]: all nested structures of i .. j-1; its first base is free or pairs to the right."""
    b, n, _ = scores.shape
    chart = [[scores.new_zeros(b)] * (n + 2) for _ in range(n + 2)]
    for i in reversed(range(n)):
        for end in range(i + 1, n + 1):
            total = scores[:, i, i] + chart[i + 1][end]
            for k in range(i + min_loop + 1, end):
                total = torch.logaddexp(total, scores[:, i, k] + chart[i + 1][k] + chart[k + 1][end])
            chart[i][end] = total
    return chart[0][n]


def loss(outputs, targets):
    n = outputs.shape[-1]
    target = targets.long()
    opens = target >= torch.arange(n, device=target.device)
    gold = outputs.gather(2, target.unsqueeze(-1)).squeeze(-1)[opens].sum()
    return (partition(outputs).sum() - gold) / target.numel()


class VelocitySGD(torch.optim.Optimizer):
    """Nesterov; the velocity holds steps already scaled by the rate of their time."""

    def __init__(self, params, lr, momentum):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            lr, mu = group["lr"], group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(mu).sub_(p.grad, alpha=lr)
                p.add_(velocity, alpha=mu).sub_(p.grad, alpha=lr)
        return value


def optimizer(parameters, peak=0.2, warm=8, total=60):
    opt = VelocitySGD(parameters, lr=peak, momentum=0.9)

    def factor(k):
        if k < warm:
            return (k + 1) / warm
        return math.cos(0.5 * math.pi * (k - warm) / (total - warm)) ** 2

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)


def build():
    return Folder()
