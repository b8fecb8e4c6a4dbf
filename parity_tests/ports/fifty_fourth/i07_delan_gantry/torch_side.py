import torch
from torch import func, nn
from torch.nn import functional as F


class Gantry(nn.Module):
    """tau = d/dt dL/dqd - dL/dq + friction, with L = T - V from two networks."""

    def __init__(self, n=3, width=24):
        super().__init__()
        self.n = n
        feats = 2 * n - 1
        self.friction = nn.Parameter(torch.zeros(n))
        self.v_net = nn.Sequential(nn.Linear(feats, width), nn.Tanh(), nn.Linear(width, 1, bias=False))
        self.l_net = nn.Sequential(
            nn.Linear(feats, width), nn.Softplus(), nn.Linear(width, width), nn.Softplus()
        )
        self.l_off = nn.Linear(width, n * (n - 1) // 2)
        self.l_diag = nn.Linear(width, n)
        self.register_buffer("tril", torch.tril_indices(n, n, -1), persistent=False)

    def lagrangian(self, q, qd):
        x = torch.cat((q[:1], q[1:].sin(), q[1:].cos()))
        h = self.l_net(x)
        off, diag = self.l_off(h), F.softplus(self.l_diag(h)) + 0.05
        # y = L^T qd, so that T = |y|^2 / 2
        y = diag * qd + qd.new_zeros(self.n).index_add(0, self.tril[1], off * qd[self.tril[0]])
        return 0.5 * y.dot(y) - self.v_net(x).squeeze(-1)

    def inverse_dynamics(self, q, qd, qdd):
        momentum = func.grad(self.lagrangian, argnums=1)
        _, dp = func.jvp(momentum, (q, qd), (qd, qdd))
        return dp - func.grad(self.lagrangian)(q, qd) + F.softplus(self.friction) * qd

    def forward(self, motion):
        q, qd, qdd = motion.unflatten(-1, (3, self.n)).unbind(1)
        return func.vmap(self.inverse_dynamics)(q, qd, qdd)


def build():
    return Gantry()
