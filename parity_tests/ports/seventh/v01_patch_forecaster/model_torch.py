import torch
from torch import nn


class RevIN(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.affine_weight = nn.Parameter(torch.ones(num_features))
        self.affine_bias = nn.Parameter(torch.zeros(num_features))

    def forward(self, x, mode):
        if mode == "norm":
            self.mean = x.mean(1, keepdim=True).detach()
            self.stdev = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + self.eps).detach()
            return (x - self.mean) / self.stdev * self.affine_weight + self.affine_bias
        x = (x - self.affine_bias) / (self.affine_weight + self.eps * self.eps)
        return x * self.stdev + self.mean


class TSTEncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, dropout):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.dropout_attn = nn.Dropout(dropout)
        self.norm_attn = nn.LayerNorm(d_model)
        self.ff = nn.Sequential(
            nn.Linear(d_model, 2 * d_model), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * d_model, d_model)
        )
        self.dropout_ffn = nn.Dropout(dropout)
        self.norm_ffn = nn.LayerNorm(d_model)

    def forward(self, src):
        src2, _ = self.self_attn(src, src, src, need_weights=False)
        src = self.norm_attn(src + self.dropout_attn(src2))
        return self.norm_ffn(src + self.dropout_ffn(self.ff(src)))


class Net(nn.Module):
    def __init__(
        self,
        c_in=3,
        seq_len=48,
        pred_len=6,
        patch_len=8,
        stride=4,
        d_model=16,
        n_heads=4,
        e_layers=2,
        dropout=0.1,
    ):
        super().__init__()
        self.patch_len, self.stride = patch_len, stride
        patch_num = (seq_len - patch_len) // stride + 2
        self.revin = RevIN(c_in)
        self.padding = nn.ReplicationPad1d((0, stride))
        self.W_P = nn.Linear(patch_len, d_model)
        self.W_pos = nn.Parameter(torch.empty(patch_num, d_model).uniform_(-0.02, 0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([TSTEncoderLayer(d_model, n_heads, dropout) for _ in range(e_layers)])
        self.head = nn.Linear(patch_num * d_model, pred_len)

    def forward(self, x):
        b, _, c = x.shape
        z = self.revin(x, "norm").permute(0, 2, 1)  # b, c, t
        z = self.padding(z).unfold(-1, self.patch_len, self.stride)  # b, c, n, p
        z = self.dropout(self.W_P(z.reshape(b * c, *z.shape[2:])) + self.W_pos)
        for layer in self.layers:
            z = layer(z)
        z = self.head(z.flatten(1)).view(b, c, -1).transpose(1, 2)
        return self.revin(z, "denorm")
