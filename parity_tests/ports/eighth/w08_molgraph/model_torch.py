from torch import nn
from torch.nn import functional as F


def aggregate(values, index, size):
    """Sums the rows of each graph by index: (batch, edges, c) -> (batch, size, c)."""
    out = values.new_zeros(values.shape[0], size, values.shape[-1])
    return out.scatter_add(1, index.unsqueeze(-1).expand_as(values), values)


def pick(nodes, index):
    return nodes.gather(1, index.unsqueeze(-1).expand(-1, -1, nodes.shape[-1]))


class EdgeConv(nn.Module):
    def __init__(self, dim, edge_dim):
        super().__init__()
        self.neighbor = nn.Linear(dim, dim, bias=False)
        self.edge = nn.Linear(edge_dim, dim)
        self.root = nn.Linear(dim, dim)

    def forward(self, x, e, src, dst, mask):
        n = x.shape[1]
        mask = mask.unsqueeze(-1)
        deg = aggregate(mask, dst, n).clamp(min=1)
        inv = deg.rsqrt()
        msg = F.relu(self.neighbor(pick(x, src)) + self.edge(e))
        msg = msg * mask * pick(inv, src) * pick(inv, dst)
        return F.relu(aggregate(msg, src, n) + self.root(x) / deg)


class Net(nn.Module):
    def __init__(self, node_dim=5, edge_dim=3, dim=24, layers=3):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(node_dim, dim), nn.ReLU())
        self.convs = nn.ModuleList([EdgeConv(dim, edge_dim) for _ in range(layers)])
        self.pool_gate = nn.Linear(dim, dim)
        self.pool_value = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, atom, bond, senders, receivers, exists):
        src, dst = senders.long(), receivers.long()
        x = self.inp(atom)
        for conv in self.convs:
            x = conv(x, bond, src, dst, exists)
        g = (self.pool_gate(x).sigmoid() * self.pool_value(x)).sum(1)
        return self.mlp(g)
