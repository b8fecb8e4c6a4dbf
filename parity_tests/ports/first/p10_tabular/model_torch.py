import torch
from torch import nn
from torch.nn import functional as F

CARDINALITIES = (7, 12, 30)


class KerasBatchNorm(nn.BatchNorm1d):
    def __init__(self, features):
        super().__init__(features, eps=1e-3, momentum=0.01)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(0), self.momentum)
            self.running_var.lerp_(x.var(0, unbiased=False), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Skip(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + x


class TabularNet(nn.Module):
    def __init__(self, width=32, depth=2, classes=2):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(c, 6) for c in CARDINALITIES])
        self.numeric_norm = KerasBatchNorm(8)
        self.body = nn.Sequential(
            nn.Linear(8 + 6 * len(CARDINALITIES), width),
            *[
                Skip(
                    nn.Sequential(
                        KerasBatchNorm(width),
                        nn.Linear(width, 2 * width),
                        nn.ReLU(),
                        nn.Linear(2 * width, width),
                    )
                )
                for _ in range(depth)
            ],
            KerasBatchNorm(width),
            nn.ReLU(),
            nn.Linear(width, classes),
        )

    def forward(self, numeric, categories):
        embedded = [table(ids) for table, ids in zip(self.embeddings, categories.unbind(1), strict=False)]
        return self.body(torch.cat([self.numeric_norm(numeric), *embedded], dim=1))
