"""DLRM-style click model; serving counterpart of the Keras ranker."""

import torch
from torch import nn

FIELD_SIZES = (20, 30, 12, 50, 7)
NUM_ITEMS = 60
EMBED_DIM = 8


def make_mlp(sizes):
    blocks = []
    for n_in, n_out in zip(sizes[:-1], sizes[1:]):
        blocks += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*blocks)


class HistoryPool(nn.Module):
    """Average embedding of the viewed items; id 0 is padding."""

    def __init__(self, num_items, dim):
        super().__init__()
        self.table = nn.Embedding(num_items, dim)

    def forward(self, ids):
        valid = (ids != 0).unsqueeze(-1)
        items = self.table(ids)
        items = torch.where(valid, items, torch.zeros_like(items))
        return items.mean(dim=1)


class Interactions(nn.Module):
    """Lower triangle (no diagonal) of the Gram matrix of the features."""

    def __init__(self, num_features):
        super().__init__()
        rows, cols = torch.tril_indices(num_features, num_features, offset=-1)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("cols", cols, persistent=False)

    def forward(self, features):
        gram = torch.einsum("bid,bjd->bij", features, features)
        return gram[:, self.rows, self.cols]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        num_features = 2 + len(FIELD_SIZES)
        num_pairs = num_features * (num_features - 1) // 2
        self.bottom = make_mlp((8, 24, EMBED_DIM))
        self.fields = nn.ModuleList(nn.Embedding(size, EMBED_DIM) for size in FIELD_SIZES)
        self.history = HistoryPool(NUM_ITEMS, EMBED_DIM)
        self.interact = Interactions(num_features)
        self.top = make_mlp((EMBED_DIM + num_pairs, 32, 16))
        self.logit = nn.Linear(16, 1)

    def forward(self, dense, cats, history):
        bottom = self.bottom(dense)
        vectors = [bottom]
        vectors += [table(ids) for table, ids in zip(self.fields, cats.unbind(1))]
        vectors.append(self.history(history))
        pairs = self.interact(torch.stack(vectors, dim=1))
        return self.logit(self.top(torch.cat((bottom, pairs), dim=-1)))
