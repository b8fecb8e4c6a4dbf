import torch
from torch import nn
from torch.nn import functional as F


class TwinLinear(nn.Module):
    """The linear layers of both towers as one batched product: (2, B, in) -> (2, B, out)"""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, d_in, d_out) * d_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(2, 1, d_out))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class StitchedLayer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.linear = TwinLinear(d_in, d_out)
        self.alpha = nn.Parameter(torch.tensor([[0.9, 0.1], [0.1, 0.9]]))

    def forward(self, x):
        h = F.elu(self.linear(x))
        return torch.einsum("ts,sbd->tbd", self.alpha, h)


class Net(nn.Module):
    def __init__(self, features=11, grades=5, widths=(32, 32, 16), p=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        dims = (features, *widths)
        self.towers = nn.Sequential(*(StitchedLayer(i, o) for i, o in zip(dims[:-1], dims[1:])))
        self.drop_grade, self.drop_amount = nn.Dropout(p), nn.Dropout(p)
        self.rank = nn.Linear(widths[-1], 1, bias=False)
        self.cuts = nn.Parameter(torch.linspace(1.5, -1.5, grades - 1))
        self.amount = nn.Linear(widths[-1], 1)

    def forward(self, x):
        grade, amount = self.towers(self.norm(x).expand(2, -1, -1)).unbind(0)
        logits = self.rank(self.drop_grade(grade)) + self.cuts
        return torch.hstack((logits, self.amount(self.drop_amount(amount))))


def loss(output, target):
    logits, amount = output[:, :-1], output[:, -1]
    level, value = target.to(output.dtype).unbind(1)
    labels = torch.arange(logits.size(1), device=output.device) < level.unsqueeze(1)
    bce = F.binary_cross_entropy_with_logits(logits, labels.to(output.dtype), reduction="sum")
    return bce / output.size(0) + 0.5 * F.l1_loss(amount, value)
