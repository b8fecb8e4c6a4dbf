import torch
import torch.nn as nn
import torch.nn.functional as F


class CrossLowRank(nn.Module):
    def __init__(self, dim, rank):
        super().__init__()
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim)

    def forward(self, x0, x):
        return x0 * self.up(self.down(x)) + x


class DCNv2(nn.Module):
    def __init__(
        self,
        vocab_sizes=(12, 30, 7, 20, 5),
        num_dense=6,
        emb_dim=4,
        rank=8,
        n_cross=3,
        hidden=(32, 16),
        emb_reg=1e-4,
        p_drop=0.1,
    ):
        super().__init__()
        self.emb_reg = emb_reg
        self.tables = nn.ModuleList([nn.Embedding(v, emb_dim) for v in vocab_sizes])
        dim = emb_dim * len(vocab_sizes) + num_dense
        self.crosses = nn.ModuleList([CrossLowRank(dim, rank) for _ in range(n_cross)])
        mlp, prev = [], dim
        for h in hidden:
            mlp += [nn.Linear(prev, h), nn.ReLU(), nn.Dropout(p_drop)]
            prev = h
        self.mlp = nn.Sequential(*mlp)
        self.out = nn.Linear(dim + prev, 1)

    def embedding_penalty(self):
        return self.emb_reg * sum(t.weight.square().sum() for t in self.tables)

    def forward(self, dense, sparse):
        e = [t(sparse[:, i].long()) for i, t in enumerate(self.tables)]
        x0 = torch.cat([*e, dense], dim=1)
        x = x0
        for layer in self.crosses:
            x = layer(x0, x)
        logit = self.out(torch.cat([x, self.mlp(x0)], dim=1))
        return logit, self.embedding_penalty()


def build():
    return DCNv2()


def loss(outputs, targets):
    logit, penalty = outputs
    bce = F.binary_cross_entropy_with_logits(logit.squeeze(-1), targets.reshape(-1).to(logit.dtype))
    return bce + penalty
