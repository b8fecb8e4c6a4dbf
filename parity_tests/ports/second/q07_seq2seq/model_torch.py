import torch
from torch import nn


def one_bias(rnn):
    """Keras has a single bias per gate: keep torch's second one at zero."""
    for name, p in rnn.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(p)
            p.requires_grad_(False)
    return rnn


class Encoder(nn.Module):
    def __init__(self, words, units):
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.rnn = one_bias(nn.LSTM(16, units, num_layers=2, batch_first=True))

    def forward(self, ids):
        memory, (h, c) = self.rnn(self.embedding(ids))
        return memory, (h[-1:].contiguous(), c[-1:].contiguous())


class LuongDecoder(nn.Module):
    def __init__(self, words, units):
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.rnn = one_bias(nn.LSTM(16, units, batch_first=True))
        self.attn_combine = nn.Linear(2 * units, units, bias=False)
        self.out = nn.Linear(units, words)

    def forward(self, ids, memory, state):
        y, _ = self.rnn(self.embedding(ids), state)
        weights = torch.bmm(y, memory.transpose(1, 2)).softmax(dim=-1)
        context = torch.bmm(weights, memory)
        return self.out(torch.tanh(self.attn_combine(torch.cat([context, y], dim=-1))))


class Seq2Seq(nn.Module):
    def __init__(self, source_words=40, target_words=35, units=24):
        super().__init__()
        self.encoder = Encoder(source_words, units)
        self.decoder = LuongDecoder(target_words, units)

    def forward(self, source, target):
        memory, state = self.encoder(source)
        return self.decoder(target, memory, state)
