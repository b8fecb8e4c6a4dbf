import torch
from torch import nn


class Highway(nn.Module):
    """As in AllenNLP: one linear layer a step for both the non-linear part and the gate."""

    def __init__(self, input_dim, num_layers=2):
        super().__init__()
        self.input_dim = input_dim
        self._layers = nn.ModuleList([nn.Linear(input_dim, input_dim * 2) for _ in range(num_layers)])
        for layer in self._layers:
            layer.bias.data[:input_dim].fill_(-2)

    def forward(self, inputs):
        current = inputs
        for layer in self._layers:
            gate, nonlinear = layer(current).split(self.input_dim, dim=-1)
            gate = torch.sigmoid(gate)
            current = gate * torch.relu(nonlinear) + (1 - gate) * current
        return current


class Net(nn.Module):
    def __init__(self, num_chars=30, num_tags=6, char_dim=8, filters=((1, 4), (2, 6), (3, 8), (5, 8))):
        super().__init__()
        self.char_embeddings = nn.Embedding(num_chars, char_dim)
        self.convolutions = nn.ModuleList()
        for width, num in filters:
            pad = nn.ConstantPad1d(((width - 1) // 2, width // 2), 0.0)
            self.convolutions.append(nn.Sequential(pad, nn.Conv1d(char_dim, num, width), nn.Tanh()))
        self.highways = Highway(sum(n for _, n in filters))
        self.dropout = nn.Dropout(p=0.25)
        self.projection = nn.Linear(sum(n for _, n in filters), num_tags)

    def forward(self, text):
        mask = text.ne(0).unsqueeze(1)  # b, 1, t
        emb = self.char_embeddings(text).transpose(1, 2) * mask
        convs = [conv(emb).masked_fill(~mask, -1.0).max(dim=-1)[0] for conv in self.convolutions]
        token_embedding = self.highways(torch.cat(convs, dim=-1))
        return torch.sigmoid(self.projection(self.dropout(token_embedding)))
