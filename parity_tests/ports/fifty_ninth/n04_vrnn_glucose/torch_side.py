import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional as F


class Head(nn.Module):
    def __init__(self, n_in, mid, n_out):
        super().__init__()
        self.both = nn.Linear(mid, 2 * n_out)
        self.trunk = nn.Linear(n_in, mid)

    def forward(self, *parts):
        loc, raw = self.both(F.elu(self.trunk(torch.cat(parts, -1)))).chunk(2, -1)
        return loc, F.softplus(raw) + 0.01


def diagonal(loc, scale):
    return Independent(Normal(loc, scale), 1)


class Filter(nn.Module):
    def __init__(self, n_x=3, n_z=4, n_h=14):
        super().__init__()
        self.n_h = n_h
        self.alarm = nn.Sequential(nn.Linear(n_h, 8), nn.ELU(), nn.Linear(8, 1))
        self.p_x = Head(n_h + 10, 16, n_x)
        self.q_z = Head(12 + n_h, 16, n_z)
        self.p_z = Head(n_h, 12, n_z)
        self.feat_z = nn.Sequential(nn.Linear(n_z, 10), nn.ELU())
        self.feat_x = nn.Sequential(nn.Linear(n_x, 16), nn.ELU(), nn.Linear(16, 12), nn.ELU())
        self.memory = nn.GRUCell(10 + 12, n_h)

    def rollout(self, series, noise):
        """Only what depends on the step before is computed in the loop: codes and states."""
        state = series.new_zeros(series.size(0), self.n_h)
        states, codes, q = [state], [], []
        for feat, eps in zip(self.feat_x(series).unbind(1), noise.unbind(1)):
            loc, scale = self.q_z(feat, state)
            code = self.feat_z(torch.addcmul(loc, scale, eps))
            state = self.memory(torch.cat([code, feat], -1), state)
            states.append(state)
            codes.append(code)
            q.append((loc, scale))
        return torch.stack(states, 1), torch.stack(codes, 1), [torch.stack(s, 1) for s in zip(*q)]

    def at_end(self, states, length):
        rows = torch.arange(states.size(0), device=states.device)
        return self.alarm(states[rows, length.long()])

    def forward(self, series, noise, length):
        return self.at_end(self.rollout(series, noise)[0], length)


def step(model, batch):
    x, alarm = batch
    series, length = x["series"], x["length"].long()
    states, codes, q = model.rollout(series, x["noise"])
    before, after = states[:, :-1], states[:, 1:]

    rate = kl_divergence(diagonal(*q), diagonal(*model.p_z(before)))
    distortion = -diagonal(*model.p_x(after, codes)).log_prob(series)
    live = torch.arange(series.size(1), device=series.device) < length.unsqueeze(1)
    bound = (distortion + 0.6 * rate).masked_fill(~live, 0.0).sum(1) / length
    logit = model.at_end(states, length)
    return bound.mean() + 0.5 * F.binary_cross_entropy_with_logits(logit, alarm.to(logit.dtype))


def build():
    return Filter()
