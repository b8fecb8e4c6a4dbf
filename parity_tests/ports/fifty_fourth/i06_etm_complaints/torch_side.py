import math

import torch
from torch import nn

K, A = 8, 0.2


class CentredNorm(nn.BatchNorm1d):
    """Batch norm with an offset and no gain."""

    def __init__(self, n):
        super().__init__(n, eps=1e-3, momentum=0.1, affine=False)
        self.offset = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return super().forward(x) + self.offset


class ETM(nn.Module):
    def __init__(self, vocab=160, k=K, emb=16, hidden=40):
        super().__init__()
        self.rho = nn.Parameter(torch.empty(vocab, emb))
        self.alphas = nn.Linear(emb, k, bias=False)
        self.q_theta = nn.Sequential(
            nn.Linear(vocab, hidden), nn.Softplus(), nn.Linear(hidden, hidden), nn.Softplus()
        )
        self.mu_logvar = nn.Linear(hidden, 2 * k, bias=False)
        self.bn = CentredNorm(2 * k)
        nn.init.xavier_uniform_(self.rho)

    def forward(self, x):
        mu, logvar = self.bn(self.mu_logvar(self.q_theta(x["counts"].log1p()))).chunk(2, dim=1)
        theta = torch.addcmul(mu, x["noise"], torch.exp(logvar / 2)).softmax(-1)
        beta = self.alphas(self.rho).softmax(0)  # vocab x k
        return (theta @ beta.T + 1e-6).log(), mu, logvar


def step(model, batch):
    x, length = batch
    s2 = (1 - 2 / K) / A + 1 / (K * A)
    log_p, mu, logvar = model(x)
    rec = -torch.einsum("bv,bv->b", x["counts"], log_p)
    kld = (logvar.exp() / s2 + mu.pow(2) / s2 - logvar + math.log(s2) - 1).sum(1).mul(0.5)
    return ((rec + kld) / length).mean()


class ClippedAdam(torch.optim.Optimizer):
    """Adam with epsilon beside the uncorrected second moment, after a clip of the whole gradient."""

    def __init__(self, params, lr, betas, eps, max_norm):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, max_norm=max_norm))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            ps = [p for p in group["params"] if p.grad is not None]
            total = torch.sqrt(sum(p.grad.square().sum() for p in ps))
            shrink = (group["max_norm"] / total).clamp(max=1.0)
            b1, b2 = group["betas"]
            for p in ps:
                st = self.state[p]
                if not st:
                    st["t"], st["m"], st["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                g = p.grad * shrink
                st["t"] += 1
                st["m"].lerp_(g, 1 - b1)
                st["v"].lerp_(g * g, 1 - b2)
                rate = group["lr"] * math.sqrt(1 - b2 ** st["t"]) / (1 - b1 ** st["t"])
                p.addcdiv_(st["m"], st["v"].sqrt().add_(group["eps"]), value=-rate)
        return loss


def optimizer(params):
    opt = ClippedAdam(params, lr=4e-3, betas=(0.95, 0.99), eps=1e-6, max_norm=0.05)
    return opt, torch.optim.lr_scheduler.StepLR(opt, step_size=8, gamma=0.8)


def build():
    return ETM()
