import torch
import torch.nn as nn
import torch.nn.functional as F

QUANTILES = (0.1, 0.5, 0.9)


class GatedResidual(nn.Module):
    def __init__(self, d_in, d_ctx, units):
        super().__init__()
        self.skip = nn.Linear(d_in, units)
        self.hidden = nn.Linear(d_in, units)
        self.context = nn.Linear(d_ctx, units, bias=False)
        self.inner = nn.Linear(units, units)
        self.gate = nn.Linear(units, 2 * units)
        self.norm = nn.LayerNorm(units)

    def forward(self, x, c):
        h = self.inner(F.elu(self.hidden(x) + self.context(c)))
        return self.norm(self.skip(x) + F.glu(self.gate(h), dim=-1))


class Selection(nn.Module):
    def __init__(self, n, units):
        super().__init__()
        self.embed = nn.ModuleList(nn.Linear(1, units) for _ in range(n))
        self.weigher = GatedResidual(n, units, n)

    def forward(self, x, c):
        cols = x.split(1, dim=-1)
        e = torch.stack([f(col) for f, col in zip(self.embed, cols)], dim=2)
        w = self.weigher(x, c).softmax(-1)
        return torch.einsum("btn,btnd->btd", w, e)


class TFTLite(nn.Module):
    def __init__(self, features=4, static=5, units=8, horizon=4):
        super().__init__()
        self.horizon = horizon
        self.static_encoder = nn.Linear(static, units)
        self.selection = Selection(features, units)
        self.init_h = nn.Linear(units, units)
        self.init_c = nn.Linear(units, units)
        self.encoder = nn.LSTM(units, units, batch_first=True)
        # keras has one bias only
        nn.init.zeros_(self.encoder.bias_hh_l0)
        self.encoder.bias_hh_l0.requires_grad_(False)
        self.encoder_norm = nn.LayerNorm(units)
        self.enrich = GatedResidual(units, units, units)
        self.attention = nn.MultiheadAttention(units, 2, batch_first=True)
        self.attention_norm = nn.LayerNorm(units)
        self.quantiles = nn.Linear(units, len(QUANTILES))

    def forward(self, history, static):
        c = F.elu(self.static_encoder(static))
        ctx = c.unsqueeze(1)
        sel = self.selection(history, ctx)
        state = (self.init_h(c).unsqueeze(0), self.init_c(c).unsqueeze(0))
        seq, _ = self.encoder(sel, state)
        seq = self.encoder_norm(seq + sel)
        rich = self.enrich(seq, ctx)
        n = rich.shape[1]
        future = torch.ones(n, n, dtype=torch.bool, device=rich.device).triu(1)
        att, _ = self.attention(rich, rich, rich, attn_mask=future, need_weights=False)
        out = self.attention_norm(att + rich)
        return self.quantiles(out[:, -self.horizon :])


def build():
    return TFTLite()


def pinball(prediction, target):
    q = prediction.new_tensor(QUANTILES)
    err = target - prediction
    return torch.where(err >= 0, q * err, (q - 1) * err).mean()
