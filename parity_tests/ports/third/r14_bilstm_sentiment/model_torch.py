import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def load_vectors(vocab=70, dim=10):
    return np.random.RandomState(3).normal(0.0, 0.4, (vocab, dim))


def make_lstm(n_in, n_hidden):
    lstm = nn.LSTM(n_in, n_hidden, batch_first=True, bidirectional=True)
    for name, p in lstm.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(p)
            p.requires_grad_(False)
    return lstm


class SentimentNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        vectors = torch.tensor(load_vectors(), dtype=torch.get_default_dtype())
        self.embedding = nn.Embedding.from_pretrained(vectors)
        self.conv = nn.Conv1d(vectors.shape[1], 16, 3)
        self.lstm1 = make_lstm(16, 8)
        self.lstm2 = make_lstm(16, 7)
        self.fc = nn.Linear(14, 12)
        self.out = nn.Linear(12, classes)

    def forward(self, text):
        x = self.embedding(text).permute(0, 2, 1)
        x = F.max_pool1d(F.relu(self.conv(x)), 2).permute(0, 2, 1)
        x, _ = self.lstm1(x)
        x, _ = self.lstm2(x)
        x = F.relu(self.fc(x[:, -1, :]))
        return self.out(x)


def build():
    return SentimentNet()
