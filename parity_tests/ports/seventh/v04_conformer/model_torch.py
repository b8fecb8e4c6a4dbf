from torch import nn
from torch.nn import functional as F


def ffn(d, p):
    return nn.Sequential(
        nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Dropout(p), nn.Linear(2 * d, d), nn.Dropout(p)
    )


class ConvModule(nn.Module):
    def __init__(self, d, k, p):
        super().__init__()
        self.layer_norm = nn.LayerNorm(d)
        self.pointwise_conv1 = nn.Conv1d(d, 2 * d, 1)
        self.depthwise_conv = nn.Conv1d(d, d, k, padding=k // 2, groups=d)
        self.norm = nn.LayerNorm(d)
        self.pointwise_conv2 = nn.Conv1d(d, d, 1)
        self.dropout = nn.Dropout(p)

    def forward(self, x, pad_mask):
        x = self.layer_norm(x).transpose(1, 2)
        x = F.glu(self.pointwise_conv1(x), dim=1)
        x = x.masked_fill(pad_mask.unsqueeze(1), 0.0)
        x = self.norm(self.depthwise_conv(x).transpose(1, 2))
        x = self.pointwise_conv2(F.silu(x).transpose(1, 2)).transpose(1, 2)
        return self.dropout(x)


class ConformerLayer(nn.Module):
    def __init__(self, d, heads, k=5, p=0.1):
        super().__init__()
        self.ffn1 = ffn(d, p)
        self.self_attn_layer_norm = nn.LayerNorm(d)
        self.self_attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.self_attn_dropout = nn.Dropout(p)
        self.conv_module = ConvModule(d, k, p)
        self.ffn2 = ffn(d, p)
        self.final_layer_norm = nn.LayerNorm(d)

    def forward(self, x, pad_mask):
        x = x + 0.5 * self.ffn1(x)
        h = self.self_attn_layer_norm(x)
        h, _ = self.self_attn(h, h, h, key_padding_mask=pad_mask, need_weights=False)
        x = x + self.self_attn_dropout(h)
        x = x + self.conv_module(x, pad_mask)
        x = x + 0.5 * self.ffn2(x)
        return self.final_layer_norm(x)


class Net(nn.Module):
    def __init__(self, n_mels=10, d=16, heads=4, n_layers=2, n_words=8):
        super().__init__()
        self.subsample = nn.Conv1d(n_mels, d, 3, stride=2)
        self.input_proj = nn.Linear(d, d)
        self.input_dropout = nn.Dropout(0.1)
        self.conformer_layers = nn.ModuleList(ConformerLayer(d, heads) for _ in range(n_layers))
        self.classifier = nn.Linear(d, n_words)

    def forward(self, mel, frames):
        # mel: (batch, mels, time)
        x = F.relu(self.subsample(F.pad(mel, (0, 1))))  # TF "SAME" at stride 2
        x = self.input_dropout(self.input_proj(x.transpose(1, 2)))
        pad_mask = frames[:, ::2].eq(0)
        for layer in self.conformer_layers:
            x = layer(x, pad_mask)
        x = x.masked_fill(pad_mask.unsqueeze(-1), 0.0).sum(1) / (~pad_mask).sum(1, keepdim=True)
        return self.classifier(x)
