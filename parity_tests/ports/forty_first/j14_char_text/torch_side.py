import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Highway(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.both = nn.Linear(d, 2 * d)
        nn.init.constant_(self.both.bias[d:], -1.0)

    def forward(self, w):
        new, g = self.both(w).chunk(2, dim=-1)
        return torch.lerp(w, new.relu(), g.sigmoid())


class WordEncoder(nn.Module):
    def __init__(self, alphabet=27, d=12):
        super().__init__()
        self.lut = nn.Embedding(alphabet, d)
        self.bank = nn.ModuleDict({f"k{k}": nn.Conv1d(d, 8 * k, k) for k in (1, 2, 3)})
        self.highway = Highway(48)

    def forward(self, text):
        b, n, c = text.shape
        e = self.lut(text.long().view(b * n, c)).permute(0, 2, 1)
        w = torch.cat([F.relu(conv(e).amax(-1)) for conv in self.bank.values()], 1)
        return self.highway(w).view(b, n, -1)


class GatedBlock(nn.Module):
    def __init__(self, d, dilation):
        super().__init__()
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.conv = nn.Conv1d(d, 2 * d, 3, dilation=dilation, padding=dilation)

    def forward(self, x, pad):
        h = self.norm(x).masked_fill(pad, 0.0)
        return (x + F.glu(self.conv(h.mT), dim=1).mT) / math.sqrt(2)


class TopicNet(nn.Module):
    def __init__(self, d=24, n_classes=4):
        super().__init__()
        self.words = WordEncoder()
        self.squeeze = nn.Linear(48, d)
        self.body = nn.ModuleList([GatedBlock(d, r) for r in (1, 2, 3)])
        self.classifier = nn.Sequential(nn.Linear(2 * d, 20), nn.Mish(), nn.Linear(20, n_classes))

    def forward(self, text):
        pad = text.sum(-1, keepdim=True).eq(0)
        x = self.squeeze(self.words(text))
        for block in self.body:
            x = block(x, pad)
        mean = x.masked_fill(pad, 0.0).sum(1) / (~pad).sum(1)
        top = x.masked_fill(pad, -torch.inf).amax(1)
        return self.classifier(torch.cat([mean, top], -1))


def build():
    return TopicNet()


def loss(logits, y):
    return F.cross_entropy(logits, y.reshape(-1).long(), label_smoothing=0.1)


class DecoupledAdam(torch.optim.Optimizer):
    """Adam with decoupled decay; epsilon is added before the bias correction."""

    def __init__(self, params, lr, betas=(0.9, 0.98), eps=1e-6, decay=0.02):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, decay=decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["n"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["n"] += 1
                p.mul_(1 - g["lr"] * g["decay"])
                s["m"].lerp_(p.grad, 1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                rate = g["lr"] * math.sqrt(1 - b2 ** s["n"]) / (1 - b1 ** s["n"])
                p.addcdiv_(s["m"], s["v"].sqrt().add_(g["eps"]), value=-rate)


def optimizer(params):
    opt = DecoupledAdam(params, lr=0.004)
    warm = 8
    return opt, torch.optim.lr_scheduler.LambdaLR(
        opt, lambda k: min((k + 1) / warm, math.sqrt(warm / (k + 1)))
    )
