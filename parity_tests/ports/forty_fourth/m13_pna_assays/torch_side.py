import torch
import torch.nn.functional as F
from torch import nn

AVG_LOG_DEG = 1.1


def scatter_sum(src, index, n):
    return src.new_zeros(n, *src.shape[1:]).index_add(0, index, src)


def scatter_extreme(src, index, n, how):
    index = index.unsqueeze(-1).expand_as(src)
    return src.new_zeros(n, src.size(-1)).scatter_reduce(0, index, src, how, include_self=False)


def segment_softmax(score, index, n):
    top = score.new_full((n,), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
    e = (score - top[index]).exp()
    return e / scatter_sum(e, index, n)[index]


class PNAConv(nn.Module):
    def __init__(self, dim, n_bonds=5, d_bond=8):
        super().__init__()
        self.edge_encoder = nn.Embedding(n_bonds, d_bond)
        self.pre = nn.Linear(2 * dim + d_bond, dim)
        self.post = nn.Sequential(nn.Linear(12 * dim, dim), nn.LeakyReLU(0.25))
        self.gru = nn.GRUCell(dim, dim)
        self.norm = nn.RMSNorm(dim, eps=1e-6)

    def forward(self, h, edge_index, edge_type):
        n = h.size(0)
        dst, src = edge_index
        msg = self.pre(torch.cat([h[dst], h[src], self.edge_encoder(edge_type)], dim=-1))
        deg = torch.bincount(dst, minlength=n).to(h.dtype).unsqueeze(-1)
        safe = deg.clamp(min=1)
        mean = scatter_sum(msg, dst, n) / safe
        var = scatter_sum(msg.square(), dst, n) / safe - mean.square()
        aggregated = torch.cat(
            [
                mean,
                scatter_extreme(msg, dst, n, "amax"),
                scatter_extreme(msg, dst, n, "amin"),
                (var.relu() + 1e-5).sqrt(),
            ],
            dim=-1,
        )
        amplify = deg.log1p() / AVG_LOG_DEG
        attenuate = AVG_LOG_DEG / safe.log1p()
        out = self.post(torch.cat([aggregated, aggregated * amplify, aggregated * attenuate], dim=-1))
        return self.norm(self.gru(out, h))


class Set2Set(nn.Module):
    def __init__(self, dim, steps):
        super().__init__()
        self.steps = steps
        self.lstm = nn.LSTMCell(2 * dim, dim)
        # one bias is enough
        nn.init.zeros_(self.lstm.bias_hh)
        self.lstm.bias_hh.requires_grad_(False)

    def forward(self, x, batch, size):
        h = c = x.new_zeros(size, x.size(-1))
        q_star = torch.cat([h, c], dim=-1)
        for _ in range(self.steps):
            h, c = self.lstm(q_star, (h, c))
            a = segment_softmax((x * h[batch]).sum(-1), batch, size)
            q_star = torch.cat([h, scatter_sum(a.unsqueeze(-1) * x, batch, size)], dim=-1)
        return q_star


class ToxNet(nn.Module):
    """The padded molecules are packed into one large graph of real atoms."""

    def __init__(self, dim=24, n_elements=9, n_assays=5, depth=2):
        super().__init__()
        self.atom_encoder = nn.Embedding(n_elements, 16)
        self.lin_in = nn.Linear(16 + 2, dim)
        self.convs = nn.ModuleList(PNAConv(dim) for _ in range(depth))
        self.pool = Set2Set(dim, steps=3)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 32), nn.ELU(), nn.Linear(32, n_assays))

    def forward(self, elements, charges, bonds):
        elements, bonds = elements.long(), bonds.long()
        mask = elements != 0
        batch, _ = mask.nonzero(as_tuple=True)
        row = mask.flatten().cumsum(0).view_as(mask) - 1
        g, i, j = bonds.nonzero(as_tuple=True)
        edge_index = torch.stack([row[g, i], row[g, j]])

        h = self.lin_in(torch.cat([self.atom_encoder(elements[mask]), charges[mask]], dim=-1)).tanh()
        for conv in self.convs:
            h = conv(h, edge_index, bonds[g, i, j])
        return self.mlp(self.pool(h, batch, elements.size(0)))


class MaskedBCE(nn.Module):
    def __init__(self, pos_weight=(3.0, 1.5, 6.0, 2.25, 4.5)):
        super().__init__()
        self.register_buffer("pos_weight", torch.tensor(pos_weight))

    def forward(self, logits, labels):
        known = labels >= 0
        bce = F.binary_cross_entropy_with_logits(
            logits, labels.clamp(min=0).to(logits), pos_weight=self.pos_weight.to(logits), reduction="none"
        )
        return (bce.masked_fill(~known, 0).sum(1) / known.sum(1)).mean()


loss = MaskedBCE()


def build():
    return ToxNet()
