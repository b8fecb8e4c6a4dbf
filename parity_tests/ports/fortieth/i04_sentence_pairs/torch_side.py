import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class PackedBiLSTM(nn.LSTM):
    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out, batch_first=True, bidirectional=True)
        for name, p in self.named_parameters():
            if name.startswith("bias_hh"):  # one bias a gate is enough
                nn.init.zeros_(p)
                p.requires_grad_(False)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(super().forward(packed)[0], batch_first=True, total_length=x.shape[1])[0]


class CrossAttention(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.maps = None  # kept for the plots

    def forward(self, a, b, pad_a, pad_b):
        scores = torch.bmm(a, b.mT) * self.scale
        over_b = scores.masked_fill(pad_b.unsqueeze(1), -1e9).softmax(2).detach()
        over_a = scores.masked_fill(pad_a.unsqueeze(2), -1e9).softmax(1).detach()
        self.maps = (over_b, over_a)
        return over_b @ b, over_a.mT @ a


class Matcher(nn.Module):
    def __init__(self, vocab=80, dim=16):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.encoder = PackedBiLSTM(dim, 12)
        self.attention = CrossAttention(4.0)
        self.mix = nn.Sequential(nn.Linear(4 * 24, 14), nn.ReLU())
        self.composer = PackedBiLSTM(14, 8)
        self.classifier = nn.Sequential(nn.Linear(4 * 16, 16), nn.Tanh(), nn.Linear(16, 3))

    def summary(self, own, other, pad, n):
        v = self.composer(self.mix(torch.cat((own, other, own - other, own * other), -1)), n)
        v = v.masked_fill(pad[..., None], 0.0)
        return torch.cat((v.sum(1) / n[:, None], v.amax(1)), -1)

    def forward(self, premise, hypothesis):
        pads = premise.eq(0), hypothesis.eq(0)
        ns = [(~p).sum(1) for p in pads]
        a, b = (self.encoder(self.words(t.long()), n) for t, n in zip((premise, hypothesis), ns))
        at, bt = self.attention(a, b, *pads)
        return self.classifier(
            torch.cat((self.summary(a, at, pads[0], ns[0]), self.summary(b, bt, pads[1], ns[1])), 1)
        )


def build():
    return Matcher()
