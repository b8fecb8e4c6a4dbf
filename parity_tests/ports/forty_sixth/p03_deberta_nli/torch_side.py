import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_log_bucket_position(rel, bucket_size, max_position):
    sign = rel.sign()
    mid = bucket_size // 2
    abs_pos = torch.where((rel < mid) & (rel > -mid), mid - 1, rel.abs())
    log_pos = (
        torch.ceil((abs_pos.double() / mid).log() / math.log((max_position - 1) / mid) * (mid - 1)).long()
        + mid
    )
    return torch.where(abs_pos <= mid, rel, log_pos * sign)


class DisentangledSelfAttention(nn.Module):
    def __init__(self, hidden, heads, span, dropout):
        super().__init__()
        self.heads = heads
        self.span = span
        self.query_proj = nn.Linear(hidden, hidden)
        self.key_proj = nn.Linear(hidden, hidden)
        self.value_proj = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, x, mask, rel_pos, rel_embeddings):
        b, n, _ = x.shape
        q, k, v = self.split(self.query_proj(x)), self.split(self.key_proj(x)), self.split(self.value_proj(x))
        pos_k = self.split(self.key_proj(rel_embeddings))
        pos_q = self.split(self.query_proj(rel_embeddings))
        scale = math.sqrt(3 * q.size(-1))

        c2p_pos = (rel_pos + self.span).clamp(0, 2 * self.span - 1).expand(b, self.heads, n, n)
        p2c_pos = (self.span - rel_pos).clamp(0, 2 * self.span - 1)
        # rows of p2c are keys
        p2c_pos = p2c_pos.expand(b, self.heads, n, n)
        scores = q @ (k / scale).transpose(-1, -2)
        scores = scores + torch.gather(q @ pos_k.transpose(-1, -2), -1, c2p_pos) / scale
        scores = scores + torch.gather(k @ pos_q.transpose(-1, -2), -1, p2c_pos).transpose(-1, -2) / scale

        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        probs = scores.softmax(-1).masked_fill(~mask, 0)
        return (self.dropout(probs) @ v).transpose(1, 2).flatten(2)


class Layer(nn.Module):
    def __init__(self, hidden, heads, span, dropout, eps=1e-7):
        super().__init__()
        self.self = DisentangledSelfAttention(hidden, heads, span, dropout)
        self.attn_out = nn.Linear(hidden, hidden)
        self.attn_norm = nn.LayerNorm(hidden, eps)
        self.intermediate = nn.Linear(hidden, 2 * hidden)
        self.output = nn.Linear(2 * hidden, hidden)
        self.out_norm = nn.LayerNorm(hidden, eps)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask, rel_pos, rel_embeddings):
        x = self.attn_norm(self.drop(self.attn_out(self.self(x, mask, rel_pos, rel_embeddings))) + x)
        return self.out_norm(self.drop(self.output(F.silu(self.intermediate(x)))) + x)


class ConvLayer(nn.Module):
    def __init__(self, hidden, eps=1e-7):
        super().__init__()
        self.conv = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.norm = nn.LayerNorm(hidden, eps)

    def forward(self, embedded, residual, keep):
        out = self.conv((embedded * keep).transpose(1, 2)).transpose(1, 2)
        return self.norm(residual + out.tanh()) * keep


class DebertaForNLI(nn.Module):
    def __init__(
        self, vocab=400, hidden=48, heads=4, layers=3, buckets=8, max_position=32, dropout=0.1, labels=3
    ):
        super().__init__()
        self.buckets, self.max_position = buckets, max_position
        self.word_embeddings = nn.Embedding(vocab, hidden)
        self.token_type_embeddings = nn.Embedding(2, hidden)
        self.embed_norm = nn.LayerNorm(hidden, 1e-7)
        self.drop = nn.Dropout(dropout)
        self.rel_embeddings = nn.Embedding(2 * buckets, hidden)
        self.rel_norm = nn.LayerNorm(hidden, 1e-7)
        self.layer = nn.ModuleList(Layer(hidden, heads, buckets, dropout) for _ in range(layers))
        self.conv = ConvLayer(hidden)
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, labels)

    def forward(self, tokens, segments):
        tokens, segments = tokens.long(), segments.long()
        valid = tokens != 0
        mask = valid[:, None, :, None] & valid[:, None, None, :]
        keep = valid[..., None]

        x = self.embed_norm(self.word_embeddings(tokens) + self.token_type_embeddings(segments))
        embedded = x = self.drop(x * keep)

        ids = torch.arange(tokens.size(1), device=tokens.device)
        rel_pos = make_log_bucket_position(ids[:, None] - ids[None, :], self.buckets, self.max_position)
        rel_embeddings = self.rel_norm(self.rel_embeddings.weight)

        for i, layer in enumerate(self.layer):
            x = layer(x, mask, rel_pos, rel_embeddings)
            if i == 0:
                x = self.conv(embedded, x, keep)
        return self.classifier(self.drop(F.silu(self.pooler(x[:, 0]))))


def build():
    return DebertaForNLI()
