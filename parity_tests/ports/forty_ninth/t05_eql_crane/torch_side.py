import torch
import torch.nn.functional as F
from torch import nn


class EqlLayer(nn.Linear):
    def __init__(self, n_in, n_id, n_sin, n_cos, n_mul):
        super().__init__(n_in, n_id + n_sin + n_cos + 2 * n_mul)
        self.cuts = (n_id, n_sin, n_cos, 2 * n_mul)
        self.width = n_id + n_sin + n_cos + n_mul

    def forward(self, x):
        plain, sine, cosine, factors = super().forward(x).split(self.cuts, -1)
        return torch.cat((plain, sine.sin(), cosine.cos(), factors.unflatten(-1, (2, -1)).prod(-2)), -1)


class EqlNet(nn.Sequential):
    def __init__(self):
        one = EqlLayer(5, 3, 3, 2, 3)
        two = EqlLayer(one.width, 4, 2, 2, 4)
        super().__init__(one, two, nn.Linear(two.width, 2))


def half_norm(w, a=0.05):
    x = w / a
    near = a * (0.375 + 0.75 * x**2 - 0.125 * x**4)
    return torch.where(x.abs() < 1, near, w.abs()).sqrt().sum()


def step(model, batch):
    x, y = batch
    fit = F.mse_loss(model(x), y)
    return fit + 1e-3 * sum(half_norm(layer.weight) for layer in model)


class AdaBelief(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        out = None
        if closure is not None:
            with torch.enable_grad():
                out = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["t"] = 0
                    st["mean"] = torch.zeros_like(p)
                    st["var"] = torch.zeros_like(p)
                st["t"] += 1
                mean, var = st["mean"], st["var"]
                surprise = p.grad - mean
                mean.add_(surprise, alpha=1 - b1)
                var.mul_(b2).addcmul_(surprise, surprise, value=1 - b2).add_(group["eps"])
                denom = (var / (1 - b2 ** st["t"])).sqrt_().add_(group["eps"])
                p.addcdiv_(mean, denom, value=-group["lr"] / (1 - b1 ** st["t"]))
        return out


def optimizer(parameters):
    return AdaBelief(parameters, lr=5e-3)


def build():
    return EqlNet()
