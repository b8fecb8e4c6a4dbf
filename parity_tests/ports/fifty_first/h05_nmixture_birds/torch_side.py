import torch
from torch import nn
from torch.distributions import Binomial, Poisson
from torch.nn import functional as F


class BirdSites(nn.Module):
    def __init__(self, n_observers=9):
        super().__init__()
        self.who = nn.Embedding(n_observers, 4)
        self.p_hidden = nn.Linear(3 + 4 + 20, 10)
        self.p_out = nn.Linear(10, 1)
        self.lam = nn.Linear(20, 1)
        self.site_fc = nn.Linear(7, 12)
        self.tree_conv = nn.Conv2d(2, 6, 3)
        self.tree_fc = nn.Linear(6 * 3 * 3, 8)

    def trees(self, canopy):
        a = F.max_pool2d(F.relu(self.tree_conv(canopy.movedim(-1, 1))), 2)
        return F.selu(self.tree_fc(a.movedim(1, -1).flatten(1)))

    def forward(self, site, canopy, visit, observer):
        hab = torch.cat([F.selu(self.site_fc(site)), self.trees(canopy)], dim=1)
        # the share of the habitat is the same in all visits: apply its columns once
        w_visit, w_who, w_hab = self.p_hidden.weight.split([3, 4, 20], dim=1)
        a = visit @ w_visit.T + self.who(observer.long()) @ w_who.T
        a = a + F.linear(hab, w_hab, self.p_hidden.bias).unsqueeze(1)
        logit = self.p_out(torch.tanh(a)).squeeze(-1)
        return torch.cat([self.lam(hab), logit], dim=1)


def loss(outputs, targets, most=40):
    log_lam, logit = outputs.tensor_split([1], dim=1)
    y = targets.to(outputs.dtype)
    terms = []
    for n in range(most + 1):
        size = torch.full_like(y, float(n))
        possible = y <= n
        happened = y >= 0
        k = torch.where(possible & happened, y, torch.zeros_like(y))
        ll = Binomial(size, logits=logit, validate_args=False).log_prob(k)
        ll = ll.masked_fill(~possible, -torch.inf).masked_fill(~happened, 0.0).sum(1)
        prior = Poisson(log_lam.exp().squeeze(1), validate_args=False).log_prob(size[:, 0])
        terms.append(ll + prior)
    total = torch.logsumexp(torch.stack(terms, 1), dim=1)
    return -total.mean()


def build():
    return BirdSites()
