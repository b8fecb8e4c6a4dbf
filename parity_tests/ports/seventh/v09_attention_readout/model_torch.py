import torch
import torch.nn.functional as F
from torch import nn


class GATConv(nn.Module):
    """Dense GAT; names as in PyG."""

    def __init__(self, in_channels, out_channels, heads, concat=True, negative_slope=0.2):
        super().__init__()
        self.heads, self.out_channels, self.concat, self.negative_slope = (
            heads,
            out_channels,
            concat,
            negative_slope,
        )
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels if concat else out_channels))
        nn.init.xavier_uniform_(self.att_dst)
        nn.init.xavier_uniform_(self.att_src)

    def forward(self, x, adj):
        B, N, _ = x.shape
        x = self.lin(x).view(B, N, self.heads, self.out_channels)
        alpha_dst = (x * self.att_dst).sum(-1).transpose(1, 2)  # B, H, N
        alpha_src = (x * self.att_src).sum(-1).transpose(1, 2)
        alpha = F.leaky_relu(alpha_dst.unsqueeze(-1) + alpha_src.unsqueeze(-2), self.negative_slope)
        adj = (adj > 0) | torch.eye(N, dtype=torch.bool, device=adj.device)
        alpha = alpha.masked_fill(~adj.unsqueeze(1), float("-inf")).softmax(dim=-1)
        out = alpha @ x.transpose(1, 2)  # B, H, N, C
        out = out.transpose(1, 2).flatten(2) if self.concat else out.mean(dim=1)
        return out + self.bias


class AttentionalAggregation(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.gate_nn = nn.Linear(channels, 1)
        self.nn = nn.Sequential(nn.Linear(channels, out), nn.Tanh())

    def forward(self, x, mask):
        gate = self.gate_nn(x).masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).softmax(1)
        return (gate * self.nn(x)).sum(1)


class Net(nn.Module):
    def __init__(self, dim=12, heads=3, layers=3, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.node_encoder = nn.Linear(6, dim)
        self.convs = nn.ModuleList(
            [GATConv(dim, dim // heads, heads) for _ in range(layers - 1)]
            + [GATConv(dim, dim, heads, concat=False)]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(layers)])
        self.pool = AttentionalAggregation(dim * layers, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 12), nn.Softplus(), nn.Linear(12, 1))

    def forward(self, nodes, edges, exists):
        x = F.elu(self.node_encoder(nodes))
        xs = []
        for conv, norm in zip(self.convs, self.norms):
            x = F.dropout(x + F.elu(norm(conv(x, edges))), self.dropout, self.training)
            xs.append(x)
        return self.mlp(self.pool(torch.cat(xs, -1), exists)).squeeze(-1)
