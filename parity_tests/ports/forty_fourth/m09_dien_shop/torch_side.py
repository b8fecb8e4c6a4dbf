import torch
import torch.nn.functional as F
from torch import nn

N_ITEMS, N_CATEGORIES, N_SEGMENTS = 121, 13, 6
AUX_WEIGHT = 0.5


class AUGRU(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, 3 * hidden_size)
        self.h2h = nn.Linear(hidden_size, 3 * hidden_size, bias=False)

    def forward(self, x, att):
        h = x.new_zeros(x.shape[0], self.hidden_size)
        for xt, a in zip(self.i2h(x).unbind(1), att.unsqueeze(-1).unbind(1)):
            xr, xu, xn = xt.chunk(3, -1)
            hr, hu, hn = self.h2h(h).chunk(3, -1)
            r = torch.sigmoid(xr + hr)
            u = a * torch.sigmoid(xu + hu)
            h = torch.lerp(h, torch.tanh(xn + r * hn), u)
        return h


class DIEN(nn.Module):
    def __init__(self, d_item=16, d_cat=8, d_seg=8, hidden=24, mlp=(48, 24)):
        super().__init__()
        d = d_item + d_cat
        self.item_emb = nn.Embedding(N_ITEMS, d_item)
        self.cat_emb = nn.Embedding(N_CATEGORIES, d_cat)
        self.seg_emb = nn.Embedding(N_SEGMENTS, d_seg)
        ids = torch.arange(1, N_ITEMS)
        self.register_buffer(
            "cat_of", torch.cat([ids.new_zeros(1), 1 + ids * 7 % (N_CATEGORIES - 1)]), persistent=False
        )
        self.extractor = nn.GRU(d, hidden, batch_first=True)
        self.att = nn.Parameter(torch.empty(hidden, d))
        nn.init.xavier_uniform_(self.att)
        self.evolver = AUGRU(hidden, hidden)
        self.aux = nn.Sequential(nn.Linear(hidden + d, 32), nn.Sigmoid(), nn.Linear(32, 1))
        dims = (d_seg + 3 * d + hidden, *mlp)
        layers = []
        for a, b in zip(dims, dims[1:]):
            layers += [nn.Linear(a, b), nn.PReLU(b, init=0.1)]
        self.head = nn.Sequential(*layers, nn.Linear(dims[-1], 1))

    def embed(self, ids):
        return torch.cat([self.item_emb(ids), self.cat_emb(self.cat_of[ids])], -1)

    def auxiliary_loss(self, states, positives, negatives, mask):
        pos = self.aux(torch.cat([states, positives], -1)).squeeze(-1)
        neg = self.aux(torch.cat([states, negatives], -1)).squeeze(-1)
        loss = -F.logsigmoid(pos) - F.logsigmoid(-neg)
        return (loss * mask).sum(1) / mask.sum(1)

    def forward(self, segment, history, negatives, candidate):
        segment, history, negatives, candidate = (t.long() for t in (segment, history, negatives, candidate))
        mask = history.ne(0)
        hist, neg, target = self.embed(history), self.embed(negatives), self.embed(candidate)

        states, _ = self.extractor(hist)
        aux = self.auxiliary_loss(states[:, :-1], hist[:, 1:], neg[:, 1:], mask[:, :-1].to(hist.dtype))

        scores = torch.einsum("bth,hd,bd->bt", states, self.att, target)
        att = scores.softmax(1) * mask
        final = self.evolver(states, att)

        pooled = (hist * mask.unsqueeze(-1)).sum(1)
        features = torch.cat([self.seg_emb(segment), target, pooled, pooled * target, final], -1)
        return {"click": self.head(features), "auxiliary": aux}


def build():
    return DIEN()


def step(model, batch):
    features, clicked = batch
    out = model(**features) if isinstance(features, dict) else model(*features)
    logit = out["click"].squeeze(-1)
    return (
        F.binary_cross_entropy_with_logits(logit, clicked.reshape(-1).to(logit))
        + AUX_WEIGHT * out["auxiliary"].mean()
    )
