"""Location-sensitive attention acoustic model, teacher forced."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PHONES, S, T, MEL = 20, 10, 8, 6
ENC, ATT, DEC = 12, 10, 14


class LocationAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(DEC, ATT, bias=False)
        self.loc_conv = nn.Conv1d(1, 4, 3, padding=1, bias=False)
        self.loc_dense = nn.Linear(4, ATT, bias=False)
        self.score = nn.Linear(ATT, 1, bias=False)

    def forward(self, h, keys, history, keep):
        where = self.loc_dense(self.loc_conv(history.unsqueeze(1)).transpose(1, 2))
        e = self.score(torch.tanh(self.query(h).unsqueeze(1) + keys + where)).squeeze(-1)
        return torch.softmax(e, dim=-1) * keep


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.prenet = nn.Sequential(nn.Linear(MEL, 10), nn.ReLU())
        self.cell = nn.GRUCell(10 + 2 * ENC, DEC)
        self.memory = nn.Linear(2 * ENC, ATT)
        self.attention = LocationAttention()
        self.frame = nn.Linear(DEC + 2 * ENC, MEL)

    def forward(self, memory, mel, keep):
        b = memory.shape[0]
        keys = self.memory(memory)
        h = memory.new_zeros(b, DEC)
        context = memory.new_zeros(b, 2 * ENC)
        history = memory.new_zeros(b, S)
        frames = []
        for p in self.prenet(mel).unbind(1):
            h = self.cell(torch.cat([p, context], dim=-1), h)
            align = self.attention(h, keys, history, keep)
            history = align
            context = torch.bmm(align.unsqueeze(1), memory).squeeze(1)
            frames.append(self.frame(torch.cat([h, context], dim=-1)))
        return torch.stack(frames, dim=1)


class TacotronLite(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(PHONES, 10)
        self.enc_conv = nn.Conv1d(10, 12, 5, padding=2)
        self.enc_rnn = nn.GRU(12, ENC, batch_first=True, bidirectional=True)
        self.decoder = Decoder()
        self.post1 = nn.Conv1d(MEL, 8, 5, padding=2)
        self.post2 = nn.Conv1d(8, MEL, 5, padding=2)

    def forward(self, phonemes, mel_in):
        ids = phonemes.long()
        keep = ids != 0
        x = self.embedding(ids) * keep.unsqueeze(-1)
        x = F.relu(self.enc_conv(x.transpose(1, 2))).transpose(1, 2)
        packed = pack_padded_sequence(x, keep.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        memory, _ = pad_packed_sequence(self.enc_rnn(packed)[0], batch_first=True, total_length=S)
        coarse = self.decoder(memory, mel_in, keep)
        r = torch.tanh(self.post1(coarse.transpose(1, 2)))
        return coarse + self.post2(r).transpose(1, 2)


def build():
    return TacotronLite()
