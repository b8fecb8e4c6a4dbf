import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Encoder(nn.Module):
    def __init__(self, n_letters: int, emb: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.emb = nn.Embedding(n_letters, emb)
        self.rnn = nn.GRU(emb, hidden, batch_first=True, bidirectional=True)
        self.to_decoder = nn.Linear(2 * hidden, hidden)

    def forward(self, src: Tensor):
        lengths = (src != 0).sum(1)
        packed = pack_padded_sequence(self.emb(src), lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=src.size(1))
        last = out[torch.arange(src.size(0), device=src.device), lengths - 1]
        return out, torch.tanh(self.to_decoder(last))


class Attention(nn.Module):
    def __init__(self, query: int, memory: int, inner: int):
        super().__init__()
        self.query_proj = nn.Linear(query, inner, bias=False)
        self.memory_proj = nn.Linear(memory, inner)
        self.energy = nn.Parameter(torch.empty(inner).uniform_(-0.5, 0.5))

    def forward(self, h: Tensor, memory: Tensor, projected: Tensor, mask: Tensor) -> Tensor:
        score = torch.tanh(self.query_proj(h).unsqueeze(1) + projected) @ self.energy
        weights = torch.softmax(score, dim=-1) * mask
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class G2P(nn.Module):
    def __init__(self, n_letters=29, n_phones=34, emb=12, hidden=20):
        super().__init__()
        self.encoder = Encoder(n_letters, emb, hidden)
        self.phone_emb = nn.Embedding(n_phones, emb)
        self.attn = Attention(hidden, 2 * hidden, 16)
        self.cell = nn.GRUCell(emb + 2 * hidden, hidden)
        self.pre_out = nn.Linear(hidden + 2 * hidden + emb, 24)
        self.out = nn.Linear(24, n_phones)

    def forward(self, letters: Tensor, phones_in: Tensor) -> Tensor:
        letters, phones_in = letters.long(), phones_in.long()
        memory, h = self.encoder(letters)
        projected = self.attn.memory_proj(memory)
        mask = (letters != 0).to(memory.dtype)
        steps = []
        for y in self.phone_emb(phones_in).unbind(1):
            c = self.attn(h, memory, projected, mask)
            h = self.cell(torch.cat([y, c], -1), h)
            steps.append(torch.cat([h, c, y], -1))
        return self.out(torch.tanh(self.pre_out(torch.stack(steps, 1))))


def build():
    return G2P()


def loss(logits: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten().long(), ignore_index=0)
