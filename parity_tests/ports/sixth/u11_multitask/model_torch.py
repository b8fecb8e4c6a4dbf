import torch
import torch.nn.functional as F
from torch import nn

CATEGORIES, NUMBERS, WIDTH, HEADS = (7, 12, 3), 5, 24, 3


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, WIDTH))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        starts = torch.tensor([0, *CATEGORIES[:-1]]).cumsum(0)
        self.register_buffer("starts", starts, persistent=False)
        self.table = nn.Embedding(sum(CATEGORIES), WIDTH)
        self.slope = nn.Parameter(torch.randn(NUMBERS, WIDTH) * 0.05)
        self.offset = nn.Parameter(torch.randn(len(CATEGORIES) + NUMBERS, WIDTH) * 0.05)
        self.reader = nn.Parameter(torch.randn(1, WIDTH) * 0.05)
        self.encoders = nn.ModuleList([Encoder(), Encoder()])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.heads = nn.ModuleDict(
            {"churn": nn.Linear(WIDTH, 1), "spend": nn.Linear(WIDTH, 1), "segment": nn.Linear(WIDTH, 4)}
        )

    def forward(self, codes, numbers):
        columns = torch.cat(
            [self.table(codes.long() + self.starts), torch.einsum("bn,nd->bnd", numbers, self.slope)], 1
        )
        x = torch.cat([self.reader.expand(len(codes), 1, WIDTH), columns + self.offset], 1)
        for encoder in self.encoders:
            x = encoder(x)
        x = self.norm(x[:, 0])
        return {
            "churn": self.heads["churn"](x),
            "spend": F.softplus(self.heads["spend"](x)),
            "segment": self.heads["segment"](x),
        }
