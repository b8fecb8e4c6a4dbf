import torch
from torch import nn
from torch.nn import functional as F


def squash(v):
    sq = v.pow(2).sum(-1, keepdim=True)
    return sq / (1 + sq) * v * torch.rsqrt(sq + 1e-7)


class Routing(nn.Module):
    def __init__(self, n_in, n_out, d_in, d_out, iterations):
        super().__init__()
        self.weight = nn.Parameter(0.2 * torch.randn(n_in, n_out, d_in, d_out))
        self.bias = nn.Parameter(torch.zeros(n_in, n_out))
        self.iterations = iterations

    def forward(self, u):
        u_hat = (u[:, :, None, None, :] @ self.weight).squeeze(-2)  # batch, in, out, d_out
        b = self.bias.expand(u.shape[0], -1, -1)
        for _ in range(self.iterations - 1):
            v = self.vote(b, u_hat)
            b = b + torch.einsum("bijd,bjd->bij", u_hat, v)
        return self.vote(b, u_hat)

    @staticmethod
    def vote(b, u_hat):
        return squash(torch.einsum("bij,bijd->bjd", F.softmax(b, dim=-1), u_hat))


class Net(nn.Module):
    def __init__(self, n_classes=4, caps_dim=8):
        super().__init__()
        self.caps_dim = caps_dim
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 4 * caps_dim, 3, stride=2)
        )
        self.routing = Routing(16, n_classes, caps_dim, 6, iterations=3)

    def forward(self, x):
        f = self.features(x).permute(0, 2, 3, 1)
        caps = squash(f.reshape(f.shape[0], -1, self.caps_dim))
        return self.routing(caps).square().sum(-1).add(1e-7).sqrt()


class MarginLoss(nn.Module):
    def __init__(self, upper=0.9, lower=0.1, down_weight=0.5):
        super().__init__()
        self.upper, self.lower, self.down_weight = upper, lower, down_weight

    def forward(self, norms, labels):
        hit = F.one_hot(labels.view(-1).long(), norms.shape[1]).bool()
        loss = torch.where(
            hit, F.relu(self.upper - norms) ** 2, self.down_weight * F.relu(norms - self.lower) ** 2
        )
        return loss.sum(1).mean()
