import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class SignNet(nn.Module):
    def __init__(self, features=10, signs=5):
        super().__init__()
        self.embed = nn.Linear(features, 14)
        self.birnn = nn.GRU(14, 12, batch_first=True, bidirectional=True)
        self.att_w = nn.Linear(12, 8)
        self.att_v = nn.Linear(8, 1, bias=False)
        self.gate = nn.Linear(12, 12)
        self.rnn = nn.GRU(12, 10, batch_first=True)
        self.sign = nn.Linear(10 + 12, signs)

    def forward(self, x):
        real = x.ne(0).any(-1)
        lengths = real.sum(1).cpu()
        packed = pack_padded_sequence(
            torch.tanh(self.embed(x)), lengths, batch_first=True, enforce_sorted=False
        )
        seq, _ = pad_packed_sequence(self.birnn(packed)[0], batch_first=True, total_length=x.shape[1])
        seq = seq.unflatten(-1, (2, 12)).mean(-2)  # mean of the directions

        score = self.att_v(torch.tanh(self.att_w(seq))).squeeze(-1)
        weights = F.softmax(score.masked_fill(~real, float("-inf")), dim=1)
        context = torch.bmm(weights.unsqueeze(1), seq).squeeze(1)

        seq = seq * torch.sigmoid(self.gate(context)).unsqueeze(1)
        packed = pack_padded_sequence(seq, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.rnn(packed)
        return self.sign(torch.cat([last[-1], context], dim=-1))


def build():
    torch.manual_seed(0)
    return SignNet()
