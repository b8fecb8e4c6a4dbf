import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal

DIM, KINDS, HIDDEN, FLOWS = 5, 3, 12, 4


class AffineNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.logs = nn.Parameter(torch.zeros(DIM))
        self.shift = nn.Parameter(torch.zeros(DIM))

    def forward(self, x):
        return (x + self.shift) * self.logs.exp(), self.logs.sum().expand(len(x))


class AffineCoupling(nn.Module):
    """Both networks at once: one hidden layer holds the units of scale and shift."""

    def __init__(self, odd):
        super().__init__()
        self.register_buffer("mask", torch.tensor([(i + odd) % 2 == 1 for i in range(DIM)]), persistent=False)
        self.hidden = nn.Linear(DIM, 2 * HIDDEN)
        self.to_s = nn.Linear(HIDDEN, DIM)
        self.to_t = nn.Linear(HIDDEN, DIM)
        self.factor = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        hs, ht = self.hidden(x.masked_fill(~self.mask, 0)).tanh().chunk(2, dim=-1)
        s = (self.factor * self.to_s(hs).tanh()).masked_fill(self.mask, 0)
        t = self.to_t(ht)
        return torch.where(self.mask, x, x * s.exp() + t), s.sum(-1)


class JetFlow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        for i in range(FLOWS):
            self.layers.append(AffineNorm())
            self.layers.append(AffineCoupling(i))
        self.mu = nn.Parameter(torch.randn(KINDS, DIM) * 0.05)

    def forward(self, x):
        total = 0
        for layer in self.layers:
            x, d = layer(x)
            total = total + d
        prior = Independent(Normal(self.mu, torch.ones_like(self.mu)), 1)
        return prior.log_prob(x[:, None, :]) + total[:, None]


def build():
    return JetFlow()


def step(model, batch):
    x, y = batch[0], batch[1]
    log_p = model(x)
    y = y.reshape(-1).long()
    return F.nll_loss(log_p, y) + 0.5 * F.cross_entropy(log_p, y)


def optimizer(parameters):
    parameters = list(parameters)
    opt = torch.optim.SGD(parameters, lr=0.02, momentum=0.5)

    def clip(*_):  # clip_grad_norm_ adds 1e-6 to the norm, Keras does not
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        if norm > 1.5:
            torch._foreach_mul_(grads, 1.5 / norm)

    opt.register_step_pre_hook(clip)
    return opt
