import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Attention(nn.Module):
    def __init__(self, query_dim, memory_dim):
        super().__init__()
        self.proj = nn.Linear(query_dim, memory_dim, bias=False)

    def forward(self, query, memory):
        scores = self.proj(query) @ memory.transpose(1, 2)
        return scores.softmax(dim=-1) @ memory


class DateTranslator(nn.Module):
    def __init__(self, chars=30, symbols=14, char_dim=12, symbol_dim=14, hidden=20):
        super().__init__()
        self.char_embedding = nn.Embedding(chars, char_dim, padding_idx=0)
        self.symbol_embedding = nn.Embedding(symbols, symbol_dim)
        self.encoder = nn.LSTM(char_dim, hidden, batch_first=True)
        self.decoder = nn.LSTM(symbol_dim, hidden, batch_first=True)
        self.attention = Attention(hidden, hidden)
        self.merge = nn.Linear(2 * hidden, symbol_dim)
        self.generator = nn.Linear(symbol_dim, symbols)
        self.generator.weight = self.symbol_embedding.weight

    def encode(self, source):
        lengths = source.ne(0).sum(1).cpu()
        packed = pack_padded_sequence(
            self.char_embedding(source), lengths, batch_first=True, enforce_sorted=False
        )
        memory, state = self.encoder(packed)
        memory, _ = pad_packed_sequence(memory, batch_first=True, total_length=source.size(1))
        return memory, state

    def forward(self, source, previous):
        memory, state = self.encode(source)
        decoded, _ = self.decoder(self.symbol_embedding(previous), state)
        context = self.attention(decoded, memory)
        merged = torch.tanh(self.merge(torch.cat([decoded, context], dim=-1)))
        return self.generator(merged)


def sequence_loss(logits, target):
    loss = F.cross_entropy(logits.transpose(1, 2), target.long(), reduction="none", label_smoothing=0.1)
    mask = target.ne(0)
    return (loss * mask).mean()


def build():
    return DateTranslator()
