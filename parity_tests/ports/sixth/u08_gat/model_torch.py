import torch
import torch.nn.functional as F
from torch import nn

NODES, FEATURES, CLASSES = 14, 6, 3


class GATv2(nn.Module):
    def __init__(self, width, heads, dim):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.lin_l = nn.Linear(width, heads * dim)
        self.lin_r = nn.Linear(width, heads * dim)
        self.att = nn.Parameter(torch.empty(heads, dim))
        nn.init.xavier_uniform_(self.att)

    def forward(self, x, adjacency):
        s = self.lin_l(x).unflatten(-1, (self.heads, self.dim))
        t = self.lin_r(x).unflatten(-1, (self.heads, self.dim))
        e = (F.leaky_relu(t.unsqueeze(2) + s.unsqueeze(1), 0.25) * self.att).sum(-1)
        loops = torch.eye(x.shape[1], device=x.device, dtype=adjacency.dtype)
        mask = (adjacency + loops) > 0
        alpha = e.masked_fill(~mask.unsqueeze(-1), float("-inf")).softmax(dim=1)
        return torch.einsum("bijh,bjhd->bihd", alpha, s).flatten(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(FEATURES, 24)
        self.convs = nn.ModuleList(GATv2(24, 3, 8) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(2))
        self.dropout = nn.Dropout(0.1)
        self.readout = nn.Linear(48, 32)
        self.classify = nn.Linear(32, CLASSES)

    def forward(self, nodes, edges, present):
        x = self.encode(nodes)
        for conv, norm in zip(self.convs, self.norms):
            x = self.dropout(norm(x + F.elu(conv(x, edges))))
        keep = present.unsqueeze(-1)
        mean = (x * keep).sum(1) / keep.sum(1).clamp(min=1)
        top = x.masked_fill(keep == 0, -1e4).amax(1)
        return self.classify(F.relu(self.readout(torch.cat([mean, top], dim=1))))


class ClippedSGD(torch.optim.SGD):
    """SGD that clips the gradients before each step."""

    def __init__(self, params, max_norm, **kwargs):
        super().__init__(params, **kwargs)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        nn.utils.clip_grad_norm_([p for g in self.param_groups for p in g["params"]], self.max_norm)
        return super().step(closure)


def optimizer(model):
    params = model.parameters() if isinstance(model, nn.Module) else model
    return ClippedSGD(params, 0.5, lr=0.05, momentum=0.9, nesterov=True)
