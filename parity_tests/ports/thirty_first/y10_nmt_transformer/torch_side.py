import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=9):
        super().__init__()
        pos = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)
        div = torch.pow(
            torch.tensor(10000.0, dtype=torch.float64),
            -torch.arange(0, d_model, 2, dtype=torch.float64) / d_model,
        )
        pe = torch.zeros(max_len, d_model, dtype=torch.float64)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x):
        return x + self.pe[: x.size(1)].to(x.dtype)


class Embedder(nn.Module):
    def __init__(self, vocab, d_model):
        super().__init__()
        self.lookup = nn.Embedding(vocab, d_model)
        self.position = PositionalEncoding(d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, ids):
        return self.position(self.lookup(ids)) * self.scale


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        b, t, d = x.shape
        return x.view(b, t, self.h, d // self.h).transpose(1, 2)

    def forward(self, q, kv, mask):
        q, k, v = self.split(self.w_q(q)), self.split(self.w_k(kv)), self.split(self.w_v(kv))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(out.transpose(1, 2).flatten(2))


def ffn(d_model, d_ff):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))


class Encoder(nn.Module):
    def __init__(self, d, h, f):
        super().__init__()
        self.attn, self.ff = Attention(d, h), ffn(d, f)
        self.norm_a, self.norm_f = nn.LayerNorm(d, eps=1e-6), nn.LayerNorm(d, eps=1e-6)

    def forward(self, x, mask):
        x = self.norm_a(x + self.attn(x, x, mask))
        return self.norm_f(x + self.ff(x))


class Decoder(nn.Module):
    def __init__(self, d, h, f):
        super().__init__()
        self.attn, self.src_attn, self.ff = Attention(d, h), Attention(d, h), ffn(d, f)
        self.norm_a = nn.LayerNorm(d, eps=1e-6)
        self.norm_s = nn.LayerNorm(d, eps=1e-6)
        self.norm_f = nn.LayerNorm(d, eps=1e-6)

    def forward(self, y, memory, tgt_mask, memory_mask):
        y = self.norm_a(y + self.attn(y, y, tgt_mask))
        y = self.norm_s(y + self.src_attn(y, memory, memory_mask))
        return self.norm_f(y + self.ff(y))


class Seq2SeqTransformer(nn.Module):
    def __init__(self, vocab=32, d_model=24, n_heads=6, d_ff=48):
        super().__init__()
        self.src_emb = Embedder(vocab, d_model)
        self.tgt_emb = Embedder(vocab, d_model)
        self.enc = Encoder(d_model, n_heads, d_ff)
        self.dec = Decoder(d_model, n_heads, d_ff)
        self.generator = nn.Linear(d_model, vocab)

    def forward(self, src, tgt):
        src, tgt = src.long(), tgt.long()
        src_pad = (src != 0)[:, None, None, :]
        tgt_pad = (tgt != 0)[:, None, None, :]
        t = tgt.size(1)
        causal = torch.ones(t, t, dtype=torch.bool, device=tgt.device).tril()
        memory = self.enc(self.src_emb(src), src_pad)
        out = self.dec(self.tgt_emb(tgt), memory, tgt_pad & causal, tgt_pad)
        return self.generator(out)


def build():
    return Seq2SeqTransformer()


def loss(outputs, targets):
    return F.cross_entropy(outputs.flatten(0, 1), targets.long().flatten(), ignore_index=0)
