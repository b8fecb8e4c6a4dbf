import torch
from torch import nn


class Table2Text(nn.Module):
    """Pointer-generator over the records of a table."""

    def __init__(self, n_fields=9, vocab=48, d_field=8, d_tok=16, d=24):
        super().__init__()
        self.d = d
        self.emb = nn.ModuleDict(
            {"tok": nn.Embedding(vocab, d_tok), "field": nn.Embedding(n_fields, d_field)}
        )
        self.encode = nn.Sequential(nn.Linear(d_field + d_tok, d), nn.Tanh())
        self.sel_w = nn.Parameter(torch.empty(d, d))
        nn.init.xavier_uniform_(self.sel_w)
        self.sel_gate = nn.Linear(2 * d, d)
        self.bridge = nn.Linear(d, 2 * d)  # h0 (through tanh) and c0
        self.rnn = nn.LSTM(d_tok, d, batch_first=True)
        nn.init.zeros_(self.rnn.bias_hh_l0)
        self.rnn.bias_hh_l0.requires_grad_(False)  # one bias is enough
        self.rnn_norm = nn.LayerNorm(d, eps=1e-3)
        self.to_query = nn.Linear(d, d, bias=False)
        self.gen = nn.Sequential(nn.Linear(2 * d, d), nn.Tanh(), nn.Linear(d, vocab), nn.Softmax(dim=-1))
        self.p_gen = nn.Linear(2 * d + d_tok, 1)

    def select(self, r, pad):
        scores = (r @ self.sel_w) @ r.transpose(1, 2)
        a = scores.masked_fill(pad.unsqueeze(1), -torch.inf).softmax(-1)
        return torch.sigmoid(self.sel_gate(torch.cat((r, a @ r), 2))) * r

    def forward(self, field, value, prev):
        value, field, prev = value.long(), field.long(), prev.long()
        pad = value.eq(0)
        r = self.encode(torch.cat((self.emb["field"](field), self.emb["tok"](value)), dim=-1))
        r = self.select(r, pad)

        n = (~pad).sum(1, keepdim=True)
        h0, c0 = self.bridge(r.masked_fill(pad.unsqueeze(-1), 0).sum(1) / n).split(self.d, dim=-1)
        e = self.emb["tok"](prev)
        s, _ = self.rnn(e, (h0.tanh().unsqueeze(0), c0.contiguous().unsqueeze(0)))
        s = self.rnn_norm(s)

        att = torch.bmm(self.to_query(s), r.mT).masked_fill(pad[:, None], -torch.inf).softmax(-1)
        sc = torch.cat((s, att.bmm(r)), -1)
        g = self.p_gen(torch.cat((sc, e), -1)).sigmoid()
        p = g * self.gen(sc)
        where = value[:, None, :].expand_as(att)
        p = p.scatter_add(2, where, (1 - g) * att)
        return (p + 1e-5).log()


def nll(logp, y):
    y = y.long()
    keep = y.ne(0)
    ll = logp.gather(2, y.unsqueeze(2)).squeeze(2)
    return -((ll * keep).sum(1) / keep.sum(1)).mean()


def build():
    return Table2Text()
