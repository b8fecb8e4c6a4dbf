import torch
import torch.nn as nn
import torch.nn.functional as F


class HighwayLayer(nn.Module):
    """Both projections in one product: what to carry, then the candidate."""

    def __init__(self, size):
        super().__init__()
        self.proj = nn.Linear(size, 2 * size)
        nn.init.constant_(self.proj.bias[:size].data, 1.0)

    def forward(self, x):
        gate, h = self.proj(x).chunk(2, dim=-1)
        return torch.lerp(F.relu(h), x, torch.sigmoid(gate))


class Net(nn.Module):
    def __init__(self, vocab=150, dim=20, filters=12, topics=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.embed_drop = nn.Dropout1d(0.2)
        self.convs = nn.ModuleList(nn.Conv1d(dim, filters, k) for k in (2, 3, 4))
        self.highway = nn.Sequential(HighwayLayer(3 * filters), HighwayLayer(3 * filters))
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(3 * filters, topics)

    def forward(self, tokens):
        x = self.embed_drop(self.embed(tokens)).transpose(1, 2)
        pooled = [F.relu(conv(x)).max(dim=2).values for conv in self.convs]
        x = self.highway(torch.cat(pooled, dim=1))
        return self.fc(self.drop(x))


def optimizer(model):
    parameters = model.parameters() if isinstance(model, nn.Module) else model
    return torch.optim.SGD(parameters, lr=0.0625, momentum=0.9, weight_decay=0.03125)
