import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, cin, hidden, cout, act):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(cin, hidden), act, nn.Linear(hidden, cout)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class HamiltonianNet(nn.Module):
    def __init__(self, dof=2, hidden=16, dt=0.1):
        super().__init__()
        self.dof, self.dt = dof, dt
        self.v = Mlp(2 * dof, hidden, 1, nn.Tanh())
        self.l = Mlp(2 * dof, hidden, 3, nn.Softplus(threshold=1000))
        self.damping = nn.Parameter(torch.full((dof,), -3.0))

    def hamiltonian(self, z):
        q, p = z.split(self.dof, dim=1)
        feats = torch.cat((q.sin(), q.cos()), 1)
        raw = self.l(feats)
        diag = F.softplus(raw[:, [0, 2]], threshold=1000)
        chol = torch.diag_embed(diag)
        chol = chol + F.pad(raw[:, 1].view(-1, 1, 1), (0, 1, 1, 0))  # the entry below the diagonal
        u = torch.einsum("nij,ni->nj", chol, p)
        return self.v(feats).squeeze(1) + 0.5 * (u * u).sum(1)

    def field(self, z):
        with torch.enable_grad():
            if not z.requires_grad:
                z = z.detach().requires_grad_(True)
            (dz,) = torch.autograd.grad(self.hamiltonian(z).sum(), z, create_graph=True)
        dq, dp = dz.split(self.dof, dim=1)  # with respect to q, to p
        return torch.cat((dp, -dq - F.softplus(self.damping, threshold=1000) * dp), 1)

    def forward(self, state):
        for _ in range(2):
            mid = torch.add(state, self.field(state), alpha=0.5 * self.dt)
            state = torch.add(state, self.field(mid), alpha=self.dt)
        return state


def build():
    return HamiltonianNet()
