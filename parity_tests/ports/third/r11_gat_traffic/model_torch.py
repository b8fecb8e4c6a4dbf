import torch
import torch.nn.functional as F
from torch import nn


class GATLayer(nn.Module):
    def __init__(self, n_in, n_out, heads, concat=True):
        super().__init__()
        self.heads, self.n_out, self.concat = heads, n_out, concat
        self.w = nn.Linear(n_in, heads * n_out, bias=False)
        self.a_src = nn.Parameter(torch.empty(heads, n_out))
        self.a_dst = nn.Parameter(torch.empty(heads, n_out))
        self.bias = nn.Parameter(torch.zeros(heads * n_out if concat else n_out))
        nn.init.xavier_uniform_(self.a_src)
        nn.init.xavier_uniform_(self.a_dst)

    def forward(self, x, adj):
        b, n, _ = x.shape
        h = self.w(x).view(b, n, self.heads, self.n_out)
        src = (h * self.a_src).sum(-1).transpose(1, 2)
        dst = (h * self.a_dst).sum(-1).transpose(1, 2)
        e = F.leaky_relu(src.unsqueeze(3) + dst.unsqueeze(2))
        e = e.masked_fill(adj.unsqueeze(1) == 0, -1e9)
        alpha = F.softmax(e, dim=2)
        out = torch.matmul(alpha, h.transpose(1, 2))
        if self.concat:
            out = out.transpose(1, 2).reshape(b, n, -1)
        else:
            out = out.mean(dim=1)
        return out + self.bias


class GAT(nn.Module):
    def __init__(self, n_feat=6, horizon=4):
        super().__init__()
        self.encode = nn.Linear(n_feat, 12)
        self.gat1 = GATLayer(12, 6, 3)
        self.gat2 = GATLayer(18, 10, 2, concat=False)
        self.decode = nn.Linear(10 + n_feat, 16)
        self.forecast = nn.Linear(16, horizon)

    def forward(self, readings, roads):
        h = F.relu(self.encode(readings))
        for layer in (self.gat1, self.gat2):
            h = F.elu(layer(h, roads))
        h = F.relu(self.decode(torch.cat([h, readings], -1)))
        return self.forecast(h)


def build():
    return GAT()
