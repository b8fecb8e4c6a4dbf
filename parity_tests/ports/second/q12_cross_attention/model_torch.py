from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def split(self, x):
        b, t, c = x.shape
        return x.view(b, t, self.heads, c // self.heads).transpose(1, 2)

    def forward(self, x, memory, padding):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        scores = q @ k.transpose(-2, -1)
        scores = scores.masked_fill(padding[:, None, None, :], -1e9)
        y = scores.softmax(dim=-1) @ v
        return self.out_proj(y.transpose(1, 2).flatten(2))


class AnswerNet(nn.Module):
    def __init__(self, words=80, dim=32, heads=4):
        super().__init__()
        self.embedding = nn.Embedding(words, dim)
        self.attention = CrossAttention(dim, heads)
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.ffn = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, dim))
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.classifier = nn.Linear(dim, 2)

    def forward(self, document, question):
        d, q = self.embedding(document), self.embedding(question)
        x = self.norm1(q + self.attention(q, d, document == 0))
        x = self.norm2(x + self.ffn(x))
        return self.classifier(x.mean(dim=1))
