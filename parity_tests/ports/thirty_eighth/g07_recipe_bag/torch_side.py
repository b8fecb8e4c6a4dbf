import torch
import torch.nn.functional as F
from torch import nn


class CuisineNet(nn.Module):
    def __init__(self, vocab=80, dim=16, cuisines=6):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, dim, mode="mean")
        nn.init.uniform_(self.bag.weight, -0.5, 0.5)
        self.tag_dense = nn.Linear(8, dim)
        self.hidden = nn.Linear(4 * dim, 24)
        self.ln = nn.LayerNorm(24)
        self.cuisine = nn.Linear(24, cuisines)

    def forward(self, ingredients, tags):
        bag = self.bag(ingredients.long())
        t = F.softsign(self.tag_dense(tags))
        h = torch.cat([bag, t, bag * t, torch.minimum(bag, t)], dim=1)
        return self.cuisine(self.ln(F.gelu(self.hidden(h))))


def optimizer(parameters):
    # no momentum, so coupled and decoupled decay are the same; none on vectors (biases, norm)
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.02},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=0.2)


def build():
    torch.manual_seed(0)
    return CuisineNet()
