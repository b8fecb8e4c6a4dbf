import torch
import torch.nn as nn
import torch.nn.functional as F


class BatchNorm(nn.BatchNorm1d):
    """Keeps the moving variance of the batch over N, as the old model did."""

    def __init__(self, features):
        super().__init__(features, eps=1e-3, momentum=0.99)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            m = self.momentum
            self.running_mean.mul_(1 - m).add_(m * x.mean(0))
            self.running_var.mul_(1 - m).add_(m * x.var(0, unbiased=False))
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def dense_block(n_in, n_out, drop):
    return nn.Sequential(
        nn.Linear(n_in, n_out, bias=False),
        nn.Dropout(drop),
        BatchNorm(n_out),
        nn.ReLU(inplace=True),
    )


class ChurnNet(nn.Module):
    def __init__(self, cardinalities=(5, 9, 4), dims=(3, 5, 2), n_num=6):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(c, d) for c, d in zip(cardinalities, dims)])
        self.bn_nums = BatchNorm(n_num)
        self.trunk = nn.Sequential(
            dense_block(sum(dims) + n_num, 32, 0.25),
            dense_block(32, 16, 0.1),
        )
        self.churn = nn.Linear(16, 1)

    def forward(self, cats, nums):
        parts = [emb(cats[:, i].long()) for i, emb in enumerate(self.embeddings)]
        parts.append(self.bn_nums(nums))
        x = self.trunk(torch.cat(parts, dim=1))
        return torch.sigmoid(self.churn(x))


def build():
    return ChurnNet()
