import torch
import torch.nn as nn
import torch.nn.functional as F


def squash(v):
    sq = (v * v).sum(-1, keepdim=True)
    return sq / (1 + sq) * v / (sq + 1e-8).sqrt()


class Routing(nn.Module):
    def __init__(self, n_in, d_in, n_out, d_out, iters=3):
        super().__init__()
        self.iters = iters
        self.w = nn.Parameter(0.3 * torch.randn(n_in, n_out, d_in, d_out))

    def forward(self, u):
        votes = torch.matmul(u[:, :, None, None, :], self.w).squeeze(3)
        with torch.no_grad():
            logits = votes.new_zeros(votes.shape[:3])
            for _ in range(self.iters - 1):
                v = squash((logits.softmax(2).unsqueeze(3) * votes).sum(1))
                logits = logits + torch.einsum("biok,bok->bio", votes, v)
            c = logits.softmax(2)
        return squash(torch.einsum("bio,biok->bok", c, votes))


class CapsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2))
        self.routing = Routing(3 * 3 * 4, 8, 4, 6)

    def forward(self, x):
        f = self.features(x.permute(0, 3, 1, 2))
        u = squash(f.permute(0, 2, 3, 1).reshape(f.shape[0], -1, 8))
        return (self.routing(u).pow(2).sum(-1) + 1e-9).sqrt()


def build():
    return CapsNet()


def margin_loss(prediction, target):
    pos = F.relu(0.9 - prediction) ** 2
    neg = F.relu(prediction - 0.1) ** 2
    return (target * pos + 0.5 * (1 - target) * neg).sum(-1).mean()
