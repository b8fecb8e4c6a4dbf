import torch
from torch import nn

VOCAB = (14, 5, 7, 4, 6, 3)
BINS = (
    (1.0, 3.0, 7.0, 14.0, 30.0, 60.0, 120.0),
    (2.0, 3.0, 5.0, 7.0, 14.0),
    (2.0, 3.0, 4.0),
    (50.0, 75.0, 100.0, 150.0, 200.0),
)


class BinnedEmbedding(nn.Module):
    def __init__(self, edges, dim):
        super().__init__()
        self.register_buffer("edges", torch.tensor(edges), persistent=False)
        self.table = nn.Embedding(len(edges) + 1, dim)

    def forward(self, value):
        return self.table(torch.bucketize(value, self.edges))


class Interaction(nn.Module):
    def __init__(self, fields, dim):
        super().__init__()
        self.proj = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(fields - 1))
        i, j = torch.triu_indices(fields, fields, offset=1)
        self.register_buffer("i", i, persistent=False)
        self.register_buffer("j", j, persistent=False)

    def forward(self, v):
        left = torch.stack([p(v[:, k]) for k, p in enumerate(self.proj)], 1)
        return (left[:, self.i] * v[:, self.j]).flatten(1)


class Reweight(nn.Module):
    def __init__(self, fields, reduction=3):
        super().__init__()
        hidden = max(1, fields // reduction)
        self.net = nn.Sequential(
            nn.Linear(fields, hidden, bias=False),
            nn.ReLU(),
            nn.Linear(hidden, fields, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, v):
        return torch.einsum("bfd,bf->bfd", v, self.net(v.mean(2)))


class FiBiNet(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        fields = len(VOCAB) + len(BINS)
        pairs = fields * (fields - 1) // 2
        self.categorical = nn.ModuleList(nn.Embedding(n, dim) for n in VOCAB)
        self.numerical = nn.ModuleList(BinnedEmbedding(b, dim) for b in BINS)
        self.senet = Reweight(fields)
        self.cross = Interaction(fields, dim)
        self.cross_se = Interaction(fields, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * pairs * dim, 24), nn.ReLU(), nn.Linear(24, 12), nn.ReLU())
        self.out = nn.Linear(12 + len(BINS), 1)

    def forward(self, cats, nums):
        cats = cats.long()
        v = torch.stack(
            [e(c) for e, c in zip(self.categorical, cats.unbind(1))]
            + [e(x) for e, x in zip(self.numerical, nums.T.contiguous())],
            1,
        )
        h = self.mlp(torch.cat([self.cross(v), self.cross_se(self.senet(v))], 1))
        return self.out(torch.cat([h, nums.log1p()], 1))


def build():
    return FiBiNet()


def tweedie(outputs, targets, p=1.5):
    eta = outputs.squeeze(-1)
    y = targets.reshape(-1).to(eta.dtype)
    return (torch.exp((2 - p) * eta) / (2 - p) - y * torch.exp((1 - p) * eta) / (1 - p)).mean()
