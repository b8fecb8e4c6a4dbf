import torch
from torch import nn
from torch.nn import functional as F


class ModeChoice(nn.Module):
    def __init__(self, n_attr=5, n_service=2, n_person=4):
        super().__init__()
        self.register_buffer("nest", torch.tensor([0, 1, 1, 0, 1, 2]), persistent=False)
        self.theta = nn.Parameter(torch.full((3,), 0.8))
        self.asc = nn.Parameter(torch.zeros(5))
        self.offer_net = nn.Sequential(nn.Linear(n_service, 8), nn.SiLU(), nn.Linear(8, 1, bias=False))
        self.taste_net = nn.Sequential(
            nn.Linear(n_person, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, n_attr)
        )

    def nest_offer(self, service):
        b, _, f = service.shape
        index = self.nest.view(1, -1, 1).expand(b, -1, f)
        offer = service.new_zeros(b, 3, f).scatter_reduce(1, index, service, reduce="mean")
        return self.offer_net(offer).squeeze(-1)

    def log_sum(self, v):
        """Log of the sum of exp(v) in each nest: (batch, modes) to (batch, nests)."""
        index = self.nest.expand_as(v)
        top = v.new_full((v.shape[0], 3), -1e9).scatter_reduce(1, index, v.detach(), reduce="amax")
        total = v.new_zeros(v.shape[0], 3).scatter_add(1, index, torch.exp(v - top[:, self.nest]))
        return top + total.log()

    def forward(self, trip, service, person, available):
        lam = self.theta.sigmoid()
        beta = -F.softplus(self.taste_net(person))
        v = torch.einsum("bmf,bf->bm", trip, beta) + F.pad(self.asc, (1, 0))
        v = (v / lam[self.nest]).masked_fill(available == 0, -1e9)
        inclusive = self.log_sum(v)
        marginal = F.log_softmax(self.nest_offer(service) + lam * inclusive, -1)
        return v + (marginal - inclusive)[:, self.nest]


def loss(outputs, targets):
    return F.nll_loss(outputs, targets.long().flatten())


def optimizer(params):
    # Keras adds its epsilon to the accumulator, under the root
    return torch.optim.Adagrad(params, lr=0.05, initial_accumulator_value=0.1 + 1e-7, eps=0.0)


def build():
    return ModeChoice()
