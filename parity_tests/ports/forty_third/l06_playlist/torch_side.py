import math

import torch
import torch.nn as nn


def make_encoder(dim, heads, ff, depth):
    layer = nn.TransformerEncoderLayer(
        dim,
        heads,
        dim_feedforward=ff,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=True,
    )
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class PlaylistNet(nn.Module):
    def __init__(self, tracks=61, sessions=4, per_session=6, hours=8, dim=16, heads=2):
        super().__init__()
        self.hour_embedding = nn.Embedding(hours, dim)
        self.track_embedding = nn.Embedding(tracks, dim)
        self.pos = nn.ParameterDict(
            {
                "session": nn.Parameter(0.05 * torch.randn(sessions, dim)),
                "item": nn.Parameter(0.05 * torch.randn(per_session, dim)),
            }
        )
        self.item_level = make_encoder(dim, heads, 32, 1)
        self.session_level = make_encoder(dim, heads, 32, 2)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.register_buffer("prior", -0.6 * torch.log(torch.arange(1, tracks + 1, dtype=torch.float32)))
        self.register_buffer("future", torch.ones(sessions, sessions, dtype=torch.bool).triu(1))

    def forward(self, tracks, hours):
        tracks, hours = tracks.long(), hours.long()
        B, S, L = tracks.shape
        empty = tracks == 0
        items = self.track_embedding(tracks) * math.sqrt(self.norm.normalized_shape[0]) + self.pos["item"]
        x = torch.cat([self.hour_embedding(hours).unsqueeze(2), items], dim=2).flatten(0, 1)
        pad = torch.cat([torch.zeros_like(empty[..., :1]), empty], dim=2).flatten(0, 1)
        x = self.item_level(x, src_key_padding_mask=pad)[:, 0]

        x = x.unflatten(0, (B, S)) + self.pos["session"]
        gone = empty.all(-1)
        x = self.session_level(x, mask=self.future, src_key_padding_mask=gone)
        last = (S - 1) - gone.sum(-1)
        user = self.norm(x[torch.arange(B, device=x.device), last])
        return torch.nn.functional.linear(user, self.track_embedding.weight, self.prior)


def build():
    return PlaylistNet()
