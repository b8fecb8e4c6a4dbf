"""Ports of the models in steps_keras.py, and of their training steps, good ones and faulty ones."""

import torch
from torch import nn
from torch.nn import functional as F


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 8)
        self.mean, self.log_variance = nn.Linear(8, 3), nn.Linear(8, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6))

    def forward(self, x):
        return self.decoder(self.mean(self.hidden(x).tanh()))


def step(model, x, share=0.1):
    h = model.hidden(x).tanh()
    mean, log_variance = model.mean(h), model.log_variance(h)
    squares = (model.decoder(mean) - x).square().sum(1)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
    return (squares + share * divergence).mean()


def other_share(model, x):
    """The second loss counts more."""
    return step(model, x, 0.2)


def other_divergence(model, x):
    """The variance is taken for its logarithm."""
    h = model.hidden(x).tanh()
    mean, variance = model.mean(h), F.softplus(model.log_variance(h))
    divergence = -0.5 * (1 + variance.log() - mean.square() - variance).sum(1)
    return ((model.decoder(mean) - x).square().sum(1) + 0.1 * divergence).mean()


def without_activation(model, x):
    """The step calls the layers otherwise."""
    h = model.hidden(x)
    mean, log_variance = model.mean(h), model.log_variance(h)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
    return ((model.decoder(mean) - x).square().sum(1) + 0.1 * divergence).mean()


def no_scalar(model, x):
    return model(x) - x


class Consistent(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = Norm()

    def forward(self, x):
        return self.last(self.norm(self.first(x)).tanh())


class Norm(nn.BatchNorm1d):
    """As Keras's."""

    def __init__(self):
        super().__init__(8, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(0), self.momentum)
            self.running_var.lerp_(x.var(0, unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def consistent(model, batch):
    x, y, weights = batch
    logits = model(x)
    loss = (weights * F.cross_entropy(logits, y, reduction="none")).mean()
    return {"loss": loss + 0.3 * (model(1.1 * x) - logits).square().mean(), "logits": logits}


class Squashed(Consistent):
    """Another activation, and something before its first layer: in both passes of a step."""

    def forward(self, x):
        return self.last(self.norm(self.first(x.abs())).sigmoid())


def less_consistent(model, batch):
    """The second loss counts half as much."""
    x, y, weights = batch
    logits = model(x)
    loss = (weights * F.cross_entropy(logits, y, reduction="none")).mean()
    return loss + 0.15 * (model(1.1 * x) - logits).square().mean()


class Taught(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(6, 8), Norm()).requires_grad_(False)
        self.student = nn.Linear(6, 8)

    def forward(self, x):
        return self.student(x)


def taught(model, x):
    """The teacher is in the mode of the student."""
    return (model.student(x) - model.teacher(x)).square().mean()


def taught_by_halves(model, x):
    """So it is here, and the loss is halved."""
    return taught(model, x) / 2


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.units = nn.Linear(6, 5)
        self.unbiased = False

    def forward(self, x):
        y = self.units(x).tanh()
        return y, y.mean(0).var(unbiased=self.unbiased)


class Balanced(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.last = Gate(), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.gate(x)[0])


def balanced(model, x, unbiased=False, turned=-1, stopped=True):
    model.gate.unbiased = unbiased
    y, uneven = model.gate(x)
    first = model.last(y)
    apart = F.mse_loss(model(x.flip(turned)), first.detach() if stopped else first)
    return (first - 1).square().mean() + apart + 0.1 * uneven


def unbiased(model, x):
    """A number that a layer gives is computed otherwise."""
    return balanced(model, x, unbiased=True)


def turned(model, x):
    """The samples stand in another order, not their numbers."""
    return balanced(model, x, turned=0)


def not_stopped(model, x):
    return balanced(model, x, stopped=False)


def hardly_another(model, x):
    """So it is here, and the loss differs by what nobody sees; no gradient does for that."""
    return balanced(model, x, stopped=False) + 1e-9


def by_name(model, batch):
    """It takes a batch for a dict."""
    return model(batch["x"]).square().mean()


class Sloped(nn.Module):
    def __init__(self):
        super().__init__()
        self.units, self.last = nn.Linear(6, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.last(self.units(x).tanh())


def sloped(model, x, share=0.1):
    """The slope of each sample by functions of `torch.func`, which give modules tensors that hold others."""
    slope = torch.func.vmap(torch.func.grad(lambda row: model(row[None]).sum()))(x)
    return slope.square().mean() + share * model(x).mean()


def sloped_otherwise(model, x):
    return sloped(model, x, share=0.2)


class Followed(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.target = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False)

    def forward(self, x):
        return torch.tanh(self.online(x)) + 0.0 * self.target(x)


def followed(model, x):
    with torch.no_grad():
        for target, online in zip(model.target.parameters(), model.online.parameters(), strict=True):
            target.lerp_(online, 0.25)
    return (torch.tanh(model.online(x)) - model.target(x.flip(1)).detach()).square().mean()


def hardly_followed(model, x):
    with torch.no_grad():
        for target, online in zip(model.target.parameters(), model.online.parameters(), strict=True):
            target.lerp_(online, 0.125)
    return (torch.tanh(model.online(x)) - model.target(x.flip(1)).detach()).square().mean()


class Dense(nn.Module):
    """A port of `counted`, but for its loss."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(6, 6)

    def forward(self, x):
        return self.dense(x)


def counted(model, x):
    """What Keras's layer adds."""
    return model(x)[:, :5].square().sum()


def counted_in_the_mean(model, x):
    """Of each sample."""
    return model(x)[:, :5].square().sum(1).mean()
