import torch
import torch.nn.functional as F
from torch import nn


class TwoTowers(nn.Module):
    def __init__(self, viewers=20, films=30, dim=8):
        super().__init__()
        self.film_table = nn.Embedding(films + 1, dim)
        self.viewer_table = nn.Embedding(viewers, dim)
        self.viewer_tower = nn.Sequential(nn.Linear(2 * dim + 1, 16), nn.ELU(), nn.Linear(16, dim))
        self.film_tower = nn.Sequential(nn.Linear(dim, 16), nn.ELU(), nn.Linear(16, dim))
        self.logit_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, viewer, age, seen, candidates, log_popularity):
        # the bag leaves the padding out of the sum and of the count
        taste = F.embedding_bag(seen.long(), self.film_table.weight, mode="mean", padding_idx=0)
        v = self.viewer_tower(torch.cat([self.viewer_table(viewer.long()), taste, age], dim=-1))
        c = self.film_tower(self.film_table(candidates.long()))
        v, c = F.normalize(v, dim=-1), F.normalize(c, dim=-1)
        return self.logit_scale.exp() * torch.einsum("nd,nkd->nk", v, c) - log_popularity


def build():
    return TwoTowers()


class DecoupledSGD(torch.optim.SGD):
    """Keras's weight_decay shrinks the weights themselves, outside of the momentum."""

    def __init__(self, params, lr, momentum, decay):
        super().__init__(params, lr=lr, momentum=momentum)
        self.decay = decay

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            torch._foreach_mul_(group["params"], 1 - group["lr"] * self.decay)
        return super().step(closure)


def optimizer(parameters):
    return DecoupledSGD(parameters, lr=0.05, momentum=0.9, decay=0.01)
