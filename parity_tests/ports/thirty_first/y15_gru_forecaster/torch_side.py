import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, n_features, hidden, dec_hidden):
        super().__init__()
        self.rnn = nn.GRU(n_features, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, dec_hidden)

    def forward(self, x):
        _, h_n = self.rnn(x)
        h_n = h_n.reshape(x.size(0), -1)  # both directions side by side
        return torch.tanh(self.fc(h_n))


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gru = nn.GRUCell(1, hidden)
        self.proj = nn.Linear(hidden, 1)

    def forward(self, y, h):
        h = self.gru(y, h)
        return y + self.proj(h), h


class Seq2Seq(nn.Module):
    def __init__(self, n_features=3, hidden=10, dec_hidden=12, horizon=5):
        super().__init__()
        self.horizon = horizon
        self.encoder = Encoder(n_features, hidden, dec_hidden)
        self.decoder = Decoder(dec_hidden)

    def forward(self, x):
        h = self.encoder(x)
        y = x[:, -1, :1]
        outputs = []
        for _ in range(self.horizon):
            y, h = self.decoder(y, h)
            outputs.append(y)
        return torch.cat(outputs, dim=1)


def build():
    return Seq2Seq()
