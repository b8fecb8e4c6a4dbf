import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


class SelfAttention(nn.Module):
    def __init__(self, hidden_size, n_heads=4, n_kv_heads=2):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, hidden_size // n_heads
        self.qkv_proj = nn.Linear(hidden_size, (n_heads + 2 * n_kv_heads) * self.head_dim, bias=False)
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=False)

    def alibi(self, n, device, dtype):
        slopes = torch.tensor(
            [2 ** (-8 * (i + 1) / self.n_heads) for i in range(self.n_heads)], device=device, dtype=dtype
        )
        pos = torch.arange(n, device=device)
        rel = pos[None, :] - pos[:, None]
        return (slopes[:, None, None] * rel).masked_fill(rel > 0, float("-inf"))

    def forward(self, x):
        bsz, n, _ = x.shape
        q, k, v = self.qkv_proj(x).split(
            [self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim, self.n_kv_heads * self.head_dim],
            dim=-1,
        )
        q = q.view(bsz, n, self.n_heads, self.head_dim).transpose(1, 2)
        k = k.view(bsz, n, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = v.view(bsz, n, self.n_kv_heads, self.head_dim).transpose(1, 2)
        k = k.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)
        v = v.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=self.alibi(n, x.device, x.dtype))
        return self.o_proj(x.transpose(1, 2).reshape(bsz, n, -1))


class SparseMoe(nn.Module):
    def __init__(self, hidden_size, intermediate_size=24, num_experts=4, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(hidden_size, num_experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(num_experts, hidden_size, intermediate_size) * 0.1)
        self.w3 = nn.Parameter(torch.randn(num_experts, hidden_size, intermediate_size) * 0.1)
        self.w2 = nn.Parameter(torch.randn(num_experts, intermediate_size, hidden_size) * 0.1)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        routing, selected = torch.topk(F.softmax(self.gate(x), dim=-1), self.top_k, dim=-1)
        routing = routing / routing.sum(-1, keepdim=True)
        weights = torch.zeros(len(x), self.gate.out_features, dtype=x.dtype, device=x.device).scatter(
            1, selected, routing
        )
        out = 0
        for e in range(self.gate.out_features):
            h = F.silu(x @ self.w1[e]) * (x @ self.w3[e])
            out = out + (h @ self.w2[e]) * weights[:, e, None]
        return out.view(shape)


class DecoderLayer(nn.Module):
    def __init__(self, hidden_size, dropout=0.1):
        super().__init__()
        self.input_layernorm = RMSNorm(hidden_size)
        self.self_attn = SelfAttention(hidden_size)
        self.post_attention_layernorm = RMSNorm(hidden_size)
        self.block_sparse_moe = SparseMoe(hidden_size)
        self.dropout = dropout

    def forward(self, h):
        h = h + F.dropout(self.self_attn(self.input_layernorm(h)), self.dropout, self.training)
        return h + F.dropout(
            self.block_sparse_moe(self.post_attention_layernorm(h)), self.dropout, self.training
        )


class Net(nn.Module):
    def __init__(self, vocab_size=32, hidden_size=16, num_layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size)
        self.layers = nn.ModuleList([DecoderLayer(hidden_size) for _ in range(num_layers)])
        self.norm = RMSNorm(hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, input_ids):
        h = self.embed_tokens(input_ids) * self.embed_tokens.embedding_dim**0.5
        for layer in self.layers:
            h = layer(h)
        logits = self.lm_head(self.norm(h))
        return torch.tanh(logits / 15.0) * 15.0
