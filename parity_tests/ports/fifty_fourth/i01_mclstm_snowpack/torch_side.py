import torch
from torch import nn

N_STORES = 8
SPIN_UP = 6


class MCLSTM(nn.Module):
    """Hoedt et al. (2021), with one store whose outflow is evaporation."""

    def __init__(self, n_aux, n_stores=N_STORES):
        super().__init__()
        self.n_stores = n_stores
        n = n_aux + n_stores
        self.outflow = nn.Linear(n, n_stores)
        self.inflow = nn.Linear(n, n_stores)
        self.transfer = nn.Linear(n, n_stores * n_stores)
        nn.init.constant_(self.outflow.bias, -2.0)
        with torch.no_grad():
            self.transfer.bias.copy_(3.0 * torch.eye(n_stores).flatten())

    def step(self, p, aux, c):
        share = c / (c.abs().sum(-1, keepdim=True) + 1e-2)
        z = torch.cat((aux, share), dim=-1)
        i = self.inflow(z).softmax(-1)
        r = self.transfer(z).unflatten(-1, (self.n_stores, self.n_stores)).softmax(-1)
        o = self.outflow(z).sigmoid()
        moved = torch.einsum("bs,bst->bt", c, r)
        h = o * moved
        return h, moved - h + i * p.unsqueeze(-1)

    def forward(self, p, aux):
        c = aux.new_zeros(p.shape[0], self.n_stores)
        flows = []
        for p_t, aux_t in zip(p.unbind(1), aux.unbind(1)):
            h, c = self.step(p_t, aux_t, c)
            flows.append(h)
        return torch.stack(flows, dim=1)


class Snowpack(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("aux_mean", torch.tensor([1.5, 140.0, 2.6, 0.62]), persistent=False)
        self.register_buffer("aux_var", torch.tensor([7.5, 75.0, 1.3, 0.25]).square(), persistent=False)
        self.core = MCLSTM(4)

    def forward(self, precipitation, weather):
        # store 0 loses its share to the air
        flows = self.core(precipitation, (weather - self.aux_mean) / self.aux_var.sqrt())
        return flows[..., 1:].sum(-1)


def nse_loss(outputs, targets):
    q_sim, q_obs = outputs[:, SPIN_UP:], targets[:, SPIN_UP:]
    sigma = q_obs.std(dim=1, correction=0, keepdim=True) + 0.1
    return ((q_sim - q_obs) / sigma).pow(2).mean()


def build():
    return Snowpack()
