import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence


class SessionGRU(nn.Module):
    def __init__(self, n_items: int = 60, dim: int = 16, hidden: tuple = (24, 20)):
        super().__init__()
        self.catalogue = nn.Embedding(n_items, dim)
        self.pop = nn.Embedding(n_items, 1)
        nn.init.zeros_(self.pop.weight)
        self.pre = nn.Sequential(nn.Linear(dim, dim), nn.GELU(approximate="none"))
        self.rnns = nn.ModuleList()
        last = dim
        for h in hidden:
            self.rnns.append(nn.GRU(last, h, batch_first=True))
            last = h
        self.to_user = nn.Sequential(nn.Linear(last, dim), nn.Tanh(), nn.LayerNorm(dim, eps=1e-3))
        self.scale = dim**-0.5

    def encode(self, session: Tensor) -> Tensor:
        n = session.ne(0).sum(1).clamp(min=1)
        seq = pack_padded_sequence(
            self.pre(self.catalogue(session)), n.cpu(), batch_first=True, enforce_sorted=False
        )
        for rnn in self.rnns:
            seq, h = rnn(seq)
        return self.to_user(h[-1])

    def forward(self, session: Tensor, candidates: Tensor) -> Tensor:
        session, candidates = session.long(), candidates.long()
        user = self.encode(session)
        logits = torch.bmm(self.catalogue(candidates), user.unsqueeze(2))
        return (logits * self.scale + self.pop(candidates)).squeeze(2)


def build():
    return SessionGRU()


def bpr_loss(scores: Tensor, label: Tensor) -> Tensor:
    pos, neg = scores[:, 0, None], scores[:, 1:]
    present = label[:, 1:] == 0
    return -F.logsigmoid(pos - neg)[present].mean()
