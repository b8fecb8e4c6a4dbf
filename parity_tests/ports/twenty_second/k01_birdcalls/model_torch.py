import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Net(nn.Module):
    def __init__(self, n_mels=10, hidden=12, species=5):
        super().__init__()
        self.gru = nn.GRU(n_mels, hidden, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.proj = nn.Linear(2 * hidden, 16)
        self.score = nn.Linear(16, 1, bias=False)
        self.fc = nn.Linear(2 * hidden, 24)
        self.out = nn.Linear(24, species)

    def pool(self, h, valid):
        s = self.score(torch.tanh(self.proj(h))).squeeze(-1)
        s = s.masked_fill(~valid, float("-inf"))
        return torch.bmm(F.softmax(s, dim=-1).unsqueeze(1), h).squeeze(1)

    def forward(self, mel):
        valid = mel.ne(0).any(dim=-1)
        lengths = valid.sum(dim=1).cpu()
        packed = pack_padded_sequence(mel, lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=mel.shape[1])
        h = self.pool(self.norm(h), valid)
        return self.out(F.elu(self.fc(h)))
