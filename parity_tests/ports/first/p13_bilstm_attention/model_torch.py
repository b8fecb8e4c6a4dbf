import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTMAttention(nn.Module):
    def __init__(self, vocabulary=100, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 24)
        self.lstm = nn.LSTM(24, 24, batch_first=True, bidirectional=True)
        for name, bias in self.lstm.named_parameters():
            if name.startswith("bias_hh"):  # Keras has one bias
                nn.init.zeros_(bias)
                bias.requires_grad_(False)
        self.attend = nn.Linear(48, 24)
        self.score = nn.Linear(24, 1)
        self.classifier = nn.Linear(48, classes)

    def forward(self, words):
        mask = words != 0
        packed = pack_padded_sequence(
            self.embedding(words), mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        x, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.shape[1])
        score = self.score(torch.tanh(self.attend(x))).squeeze(-1)
        weight = torch.softmax(score.masked_fill(mask, -1e9), dim=1)
        pooled = (x * weight.unsqueeze(-1)).sum(1)
        return torch.softmax(self.classifier(pooled), dim=-1)
