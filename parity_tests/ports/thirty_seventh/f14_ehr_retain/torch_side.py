import torch
import torch.nn as nn


def reverse(x, lengths):
    """The sequences back to front."""
    return x.flip(1)


class RETAIN(nn.Module):
    def __init__(self, codes=14, emb=8, alpha=6, beta=6):
        super().__init__()
        self.emb = nn.Linear(codes, emb, bias=False)
        self.rnn_alpha = nn.GRU(emb, alpha, batch_first=True)
        self.rnn_beta = nn.GRU(emb, beta, batch_first=True)
        self.w_alpha = nn.Linear(alpha, 1)
        self.w_beta = nn.Linear(beta, emb)
        self.out = nn.Linear(emb, 1)

    def forward(self, x):  # (batch, visits, codes)
        present = x.abs().sum(-1) > 0
        lengths = present.sum(1)
        v = self.emb(x)
        back = reverse(v, lengths)
        g = reverse(self.rnn_alpha(back)[0], lengths)
        h = reverse(self.rnn_beta(back)[0], lengths)
        e = self.w_alpha(g) * present.unsqueeze(-1)
        context = (e.softmax(1) * torch.tanh(self.w_beta(h)) * v).sum(1)
        return self.out(context)


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, lr, max_norm):
        super().__init__(params, lr=lr)
        self.max_norm = max_norm

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                nn.utils.clip_grad_norm_(p, self.max_norm)
        return super().step(closure)


def optimizer(params):
    return ClippedSGD(params, lr=0.5, max_norm=0.25)


def build():
    return RETAIN()
