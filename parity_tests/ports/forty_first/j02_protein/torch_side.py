import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WEIGHT = torch.tensor([0.8, 2.0, 0.7])


def residue_loss(logits, target):
    return F.cross_entropy(
        logits.flatten(0, 1), target.flatten().long(), weight=WEIGHT.to(logits), ignore_index=-1
    )


class DilatedBlock(nn.Module):
    def __init__(self, ch, mid, rate):
        super().__init__()
        self.norm = nn.LayerNorm(ch, eps=1e-3)
        self.wide = nn.Conv1d(ch, mid, 3, padding=rate, dilation=rate)
        self.narrow = nn.Linear(mid, ch)
        self.act = nn.GELU()

    def forward(self, x, keep):
        h = self.norm(x)
        h = self.act(self.wide(h.mT)).mT
        return (x + self.narrow(h)) * keep


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(21, 18)
        self.tower = nn.ModuleList(DilatedBlock(24, 48, r) for r in (1, 2, 4))
        self.rnn = nn.GRU(24, 16, batch_first=True, bidirectional=True)
        self.out = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 3))

    def forward(self, residues, profile):
        mask = residues.ne(0)
        keep = mask.unsqueeze(-1).to(profile.dtype)
        x = torch.cat((self.embed(residues.long()), profile), -1) * keep
        for b in self.tower:
            x = b(x, keep)
        packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        return self.out(h) * keep


def build():
    return Tagger()
