import torch
import torch.nn.functional as F
from torch import nn

CATS = [7, 4, 12, 6]
EDGES = [580.0, 620.0, 660.0, 700.0, 740.0, 780.0]
N_CROSS = 3


class Cross(nn.Module):
    def __init__(self, d, rank):
        super().__init__()
        self.shrink = nn.Linear(d, rank, bias=False)
        self.expand = nn.Linear(rank, d)

    def forward(self, x0, x):
        return torch.addcmul(x, x0, self.expand(self.shrink(x)))


class LoanDCN(nn.Module):
    def __init__(self, emb=4, rank=6):
        super().__init__()
        # members in the order of the learning rate groups: embeddings, crosses, the rest
        self.embeddings = nn.ModuleList([nn.Embedding(n, emb) for n in CATS + [len(EDGES) + 1]])
        d = emb * len(self.embeddings) + 5
        self.crosses = nn.ModuleList([Cross(d, rank) for _ in range(N_CROSS)])
        self.tower = nn.Sequential(
            nn.Linear(d, 32, bias=False),
            nn.BatchNorm1d(32, eps=1e-3, momentum=0.05),
            nn.LeakyReLU(0.1),
            nn.Linear(32, 16, bias=False),
            nn.BatchNorm1d(16, eps=1e-3, momentum=0.05),
            nn.LeakyReLU(0.1),
            nn.Dropout(0.1),
        )
        self.head = nn.Linear(d + 16, 1)
        self.register_buffer("edges", torch.tensor(EDGES))
        self.register_buffer("mean", torch.tensor([11.0, 18.0, 0.45, 12.0, 1.2]))
        self.register_buffer("std", torch.tensor([0.55, 8.0, 0.22, 6.0, 1.1]))

    def forward(self, cat, num):
        fico, income, other = num.split([1, 1, 4], dim=1)
        ids = torch.cat([cat.long(), torch.bucketize(fico.contiguous(), self.edges)], dim=1)
        cols = [e(i) for e, i in zip(self.embeddings, ids.unbind(1))]
        cols.append((torch.cat([income.log1p(), other], 1) - self.mean) / self.std)
        x0 = x = torch.cat(cols, 1)
        for cross in self.crosses:
            x = cross(x0, x)
        return self.head(torch.cat([x, self.tower(x0)], 1))


def focal(logits, y, alpha=0.75, gamma=2.0):
    y = y.to(logits.dtype)
    ce = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    p = logits.sigmoid()
    p_t = p * y + (1 - p) * (1 - y)
    loss = ce * (1 - p_t) ** gamma
    loss = (alpha * y + (1 - alpha) * (1 - y)) * loss
    return loss.mean()


def make_optimizer(params, lr=0.1):
    params = list(params)
    a = len(CATS) + 1
    b = a + 2 * N_CROSS
    groups = [
        {"params": params[:a], "lr": 0.25 * lr},
        {"params": params[a:b], "lr": 0.1 * lr},
        {"params": params[b:]},
    ]
    # Keras adds its epsilon (1e-7) under the root
    return torch.optim.Adagrad(groups, lr=lr, initial_accumulator_value=0.1 + 1e-7, eps=0.0)


def build():
    return LoanDCN()
