import torch
from torch import nn

KINDS, LENGTH, DIM, HEADS, FFN, CLASSES = 25, 15, 32, 2, 48, 3


class EventTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(KINDS, DIM)
        self.gap = nn.Sequential(nn.Linear(1, DIM), nn.Tanh())
        self.positions = nn.Parameter(torch.randn(1, LENGTH, DIM) * 0.05)
        layer = nn.TransformerEncoderLayer(DIM, HEADS, FFN, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(
            layer, num_layers=2, norm=nn.LayerNorm(DIM), enable_nested_tensor=False
        )
        self.wear = nn.Linear(DIM, CLASSES)

    def forward(self, events, gaps):
        events = events.long()
        x = self.kinds(events) + self.gap(gaps.unsqueeze(-1)) + self.positions
        x = self.encoder(x)
        return self.wear(x.mean(dim=1))


def build():
    return EventTransformer()
