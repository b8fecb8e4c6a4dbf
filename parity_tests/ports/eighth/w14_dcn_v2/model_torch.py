import torch
from torch import nn


class CrossNet(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.w = nn.ModuleList([nn.Linear(dim, dim, bias=False) for _ in range(depth)])
        self.b = nn.ParameterList([nn.Parameter(torch.zeros(dim)) for _ in range(depth)])

    def forward(self, x0):
        x = x0
        for w, b in zip(self.w, self.b):
            x = x0 * w(x) + b + x
        return x


class Net(nn.Module):
    def __init__(self, n_codes=30, dim=26):
        super().__init__()
        self.register_buffer("edges", torch.tensor([18.0, 25.0, 35.0, 45.0, 55.0, 65.0]), persistent=False)
        self.age_emb = nn.Embedding(7, 4)
        self.code_emb = nn.Embedding(n_codes, 6)
        self.cross = CrossNet(dim, 3)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.1)
        )
        self.out = nn.Linear(dim + 16, 1)

    def forward(self, age, numbers, codes):
        bucket = torch.bucketize(age.squeeze(-1), self.edges)
        x0 = torch.cat([numbers, self.age_emb(bucket), self.code_emb(codes).flatten(1)], dim=1)
        return self.out(torch.cat([self.cross(x0), self.mlp(x0)], dim=1))


def optimizer(model):
    parameters = model.parameters() if isinstance(model, nn.Module) else model
    return torch.optim.Adagrad(parameters, lr=0.03)
