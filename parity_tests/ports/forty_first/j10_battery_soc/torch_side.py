import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalConv(nn.Conv1d):
    def forward(self, x):
        return super().forward(F.pad(x, ((self.kernel_size[0] - 1) * self.dilation[0], 0)))


def one_bias_lstm(i, h):
    m = nn.LSTM(i, h, batch_first=True)
    nn.init.zeros_(m.bias_hh_l0)
    m.bias_hh_l0.requires_grad_(False)
    with torch.no_grad():
        m.bias_ih_l0.zero_()
        m.bias_ih_l0[h : 2 * h] = 1.0
    return m


class SocEstimator(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.tensor([3.7, 1.5, 26.0]))
        self.register_buffer("spread", torch.tensor([0.35, 2.2, 11.0]))
        self.init_h = nn.Linear(2, 16)
        self.init_c = nn.Linear(2, 16)
        self.enc = CausalConv(3, 12, 5, stride=2)
        self.enc_norm = nn.LayerNorm(12, eps=1e-3)
        self.enc2 = CausalConv(12, 12, 3, dilation=2)
        self.rnn = nn.ModuleList([one_bias_lstm(16 - 4, 16), one_bias_lstm(28, 12)])
        self.ocv = nn.Linear(2, 1)
        self.mlp = nn.Sequential(nn.Linear(26, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, sig, cell):
        x = (sig - self.centre) / self.spread
        a = F.gelu(self.enc_norm(self.enc(x.mT).mT))
        s = a + F.elu(self.enc2(a.mT)).mT
        state = (torch.tanh(self.init_h(cell))[None], self.init_c(cell)[None])
        r, _ = self.rnn[0](s, state)
        _, (h, _) = self.rnn[1](torch.cat([r, s], -1))
        z = self.mlp(torch.cat([h[-1], a.mean(1), cell], -1))
        return torch.sigmoid(z + self.ocv(x[:, -1, :2]))


def build():
    return SocEstimator()


def loss(pred, target, sample_weight=None):
    d = 0.05
    e = pred - target.to(pred.dtype)
    h = d * (torch.sqrt(1 + (e / d) ** 2) - 1) * 2**0.5
    h = (h * torch.where(e < 0, 1.5, 1.0)).mean(-1)
    if sample_weight is not None:
        h = h * sample_weight.to(h.dtype)
    return h.mean()
