import torch
import torch.nn.functional as F
from torch import nn


class GatedConv(nn.Module):
    def __init__(self, cin, cout, k, stride=1):
        super().__init__()
        self.gate = nn.Conv1d(cout, cout, 1)
        self.body = nn.Sequential(nn.Conv1d(cin, cout, k, stride), nn.GroupNorm(4, cout))

    def forward(self, x):
        h = self.body(x)
        return self.gate(h).sigmoid() * F.softplus(h)


class SeedNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, classes))
        self.trunk = nn.Sequential(GatedConv(1, 12, 7, 2), GatedConv(12, 16, 5, 2), GatedConv(16, 16, 3))

    def forward(self, spectrum, direction=None):
        std, mean = torch.std_mean(spectrum, dim=-1, correction=0, keepdim=True)
        z = self.trunk(((spectrum - mean) / (std + 1e-3)).unsqueeze(1))
        return self.head(torch.cat((z.mean(-1), z.amax(-1)), dim=-1))


def adversarial_direction(net, x, target, noise, xi=0.05, radius=0.3, iters=2):
    """Power iteration for the direction in which the prediction changes most."""
    d = F.normalize(noise, dim=1)
    for _ in range(iters):
        d = d.detach().requires_grad_()
        logq = net(x + xi * d).log_softmax(1)
        kl = F.kl_div(logq, target, reduction="sum", log_target=True)
        (g,) = torch.autograd.grad(kl, d)
        d = F.normalize(g, dim=1)
    return radius * d


def step(model, batch, alpha=1.0, beta=0.2):
    inputs, variety = batch
    x = inputs["spectrum"]

    logp = model(x).log_softmax(1)
    labelled = (variety >= 0).sum().clamp(min=1)
    sup = F.nll_loss(logp, variety.long(), ignore_index=-1, reduction="sum") / labelled

    target = logp.detach()
    r = adversarial_direction(model, x, target, inputs["direction"])
    lds = F.kl_div(model(x + r).log_softmax(1), target, reduction="batchmean", log_target=True)

    ent = torch.distributions.Categorical(logits=logp).entropy().mean()
    return sup + alpha * lds + beta * ent


def build():
    return SeedNet()
