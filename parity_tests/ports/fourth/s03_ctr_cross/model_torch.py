import torch
from torch import nn
from torch.nn import functional as F

FIELDS = {"device": 6, "site": 30, "campaign": 50}


class ClickModel(nn.Module):
    def __init__(self, numbers=9, width=6):
        super().__init__()
        total = numbers + width * len(FIELDS)
        self.tables = nn.ParameterDict(
            {k: nn.Parameter(0.05 * torch.randn(n, width)) for k, n in FIELDS.items()}
        )
        self.scale = nn.Parameter(torch.ones(numbers))
        self.shift = nn.Parameter(torch.zeros(numbers))
        self.cross = nn.ModuleList(nn.Linear(total, total) for _ in range(3))
        self.deep = nn.Sequential(
            nn.Linear(total, 48), nn.ReLU(), nn.Dropout(0.25), nn.Linear(48, 24), nn.ReLU(), nn.Dropout(0.25)
        )
        self.click = nn.Linear(total + 24, 1)

    def forward(self, numbers, device, site, campaign):
        rows = {"device": device, "site": site, "campaign": campaign}
        parts = [F.layer_norm(numbers, numbers.shape[-1:], self.scale, self.shift, 1e-6)]
        parts += [self.tables[k][index.long()] for k, index in rows.items()]
        first = torch.cat(parts, -1)
        x = first
        for layer in self.cross:
            x = torch.addcmul(x, first, layer(x))
        return self.click(torch.cat([x, self.deep(first)], -1)).squeeze(-1)


def optimizer(parameters):
    """L2 of Keras's layers, 5e-4 w², is a weight decay of 1e-3 here, on matrices and tables only."""
    if isinstance(parameters, nn.Module):
        parameters = parameters.parameters()
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 1e-3},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)
