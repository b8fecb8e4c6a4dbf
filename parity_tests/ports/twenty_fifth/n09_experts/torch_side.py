import torch
import torch.nn as nn
import torch.nn.functional as F


class MoE(nn.Module):
    def __init__(self, width=12, hidden=9, experts=4, k=2):
        super().__init__()
        self.k = k
        self.router = nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, width, hidden) * 0.4)
        self.b1 = nn.Parameter(torch.randn(experts, hidden) * 0.1)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, width) * 0.4)

    def forward(self, h):
        probs = self.router(h).softmax(dim=-1)
        weights, chosen = probs.topk(self.k, dim=-1)
        out = torch.zeros_like(h)
        for slot in range(self.k):
            w, e = weights[:, slot, None], chosen[:, slot]
            for i in range(self.w1.shape[0]):
                rows = (e == i).nonzero(as_tuple=True)[0]
                y = F.silu(h[rows] @ self.w1[i] + self.b1[i]) @ self.w2[i]
                out = out.index_add(0, rows, w[rows] * y)
        return out, probs, chosen


class Prices(nn.Module):
    def __init__(self, features=10, width=12):
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.moe = MoE(width)
        self.price = nn.Linear(width, 1)

    def run(self, x):
        h = torch.tanh(self.stem(x))
        mixed, probs, chosen = self.moe(h)
        return self.price(h + mixed), probs, chosen

    def forward(self, x):
        return self.run(x)[0]


def load_balance(probs, chosen):
    n_experts = probs.shape[-1]
    load = F.one_hot(chosen, n_experts).sum(dim=1).to(probs.dtype).mean(dim=0)
    return n_experts * torch.dot(load, probs.mean(dim=0))


def step(model, batch):
    x, y = batch
    prediction, probs, chosen = model.run(x)
    return F.mse_loss(prediction.squeeze(-1), y.reshape(-1).to(prediction.dtype)) + 0.1 * load_balance(
        probs, chosen
    )


def build():
    return Prices()
