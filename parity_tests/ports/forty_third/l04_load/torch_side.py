from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Q = (0.1, 0.5, 0.9)


class StaticEncoder(nn.Module):
    """Everything that is derived from the static covariates: context, FiLM, first state."""

    def __init__(self, dim: int, cardinalities=(6, 4), sizes=(4, 3), n_num=3):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, s) for c, s in zip(cardinalities, sizes))
        self.ctx = nn.Linear(sum(sizes) + n_num, dim)
        self.derived = nn.Linear(dim, 3 * dim)  # scale, offset, state

    def forward(self, cat: Tensor, num: Tensor):
        e = [t(cat[:, i].long()) for i, t in enumerate(self.tables)]
        c = F.elu(self.ctx(torch.hstack([*e, num])))
        scale, offset, state = self.derived(c).chunk(3, dim=1)
        return c, scale, offset, torch.tanh(state)


class Forecaster(nn.Module):
    def __init__(self, dim: int = 16, n_hist: int = 4, n_fut: int = 3):
        super().__init__()
        self.static = StaticEncoder(dim)
        self.hist_proj = nn.Linear(n_hist, dim)
        self.fut_proj = nn.Linear(n_fut, dim)
        self.gru_past = nn.GRU(dim, dim, batch_first=True)
        self.gru_future = nn.GRU(2 * dim, dim, batch_first=True)
        self.att_scale = nn.Parameter(torch.tensor(1.0))
        self.grn_in = nn.Linear(3 * dim, dim)
        self.grn_glu = nn.Linear(dim, 2 * dim)
        self.grn_norm = nn.LayerNorm(dim, eps=1e-3)
        self.quantiles = nn.Linear(dim, 3)

    def forward(self, history: Tensor, future: Tensor, static_cat: Tensor, static_num: Tensor) -> Tensor:
        c, scale, offset, h0 = self.static(static_cat, static_num)
        past = self.hist_proj(history)
        past = torch.tanh(torch.addcmul(past + offset[:, None], past, scale[:, None]))
        enc, h = self.gru_past(past, h0[None])

        steps = future.size(1)
        c = c.unsqueeze(1).expand(-1, steps, -1)
        dec, _ = self.gru_future(torch.cat([self.fut_proj(future).tanh(), c], -1), h)
        weights = (self.att_scale * torch.einsum("bqd,bkd->bqk", dec, enc)).softmax(-1)
        h = F.elu(self.grn_in(torch.cat([dec, weights @ enc, c], -1)))
        x = self.grn_norm(dec + F.glu(self.grn_glu(h), -1))

        q = self.quantiles(x)
        naive = history[:, -24 : -24 + steps, 0]
        mid = q[..., 1] + naive
        return torch.stack([mid - F.softplus(q[..., 0]), mid, mid + F.softplus(q[..., 2])], -1)


def pinball(pred: Tensor, target: Tensor) -> Tensor:
    e = target.to(pred).unsqueeze(-1) - pred
    q = pred.new_tensor(Q)
    return torch.where(e >= 0, q * e, (q - 1) * e).mean()


class TFAdam(torch.optim.Optimizer):
    """Adam as TensorFlow has it: epsilon next to the uncorrected root."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-7):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"].lerp_(p.grad, 1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                alpha = group["lr"] * (1 - b2 ** s["t"]) ** 0.5 / (1 - b1 ** s["t"])
                p.addcdiv_(s["m"], s["v"].sqrt().add_(group["eps"]), value=-alpha)


def make_optimizer(params):
    opt = TFAdam(params, lr=4e-3, betas=(0.9, 0.99), eps=1e-6)
    warm = 10
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min((k + 1) / warm, (warm / (k + 1)) ** 0.5))
    return opt, sched


def build() -> nn.Module:
    return Forecaster()
