import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def run_packed(rnn, x, lengths):
    """lengths of 0 count as 1, their rows are not used by anyone"""
    packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    out, _ = rnn(packed)
    out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.size(1))
    return out


class HierTagger(nn.Module):
    def __init__(self, vocab=70, n_acts=6, emb=16, word_dim=10, utt_dim=12, att_dim=14):
        super().__init__()
        self.speaker_emb = nn.Embedding(2, 4)
        self.word_emb = nn.Embedding(vocab, emb)
        self.word_rnn = nn.GRU(emb, word_dim, batch_first=True, bidirectional=True)
        self.utt_rnn = nn.GRU(2 * word_dim + 5, utt_dim, batch_first=True, bidirectional=True)
        self.att = nn.Sequential(
            nn.Linear(2 * word_dim, att_dim), nn.Tanh(), nn.Linear(att_dim, 1, bias=False)
        )
        self.out = nn.Sequential(
            nn.Linear(2 * utt_dim, 16), nn.SELU(), nn.Dropout(0.1), nn.Linear(16, n_acts)
        )

    def encode_words(self, tokens):
        lengths = tokens.ne(0).sum(-1)
        h = run_packed(self.word_rnn, self.word_emb(tokens), lengths)
        score = self.att(h).squeeze(-1).masked_fill(tokens.eq(0), -1e9)
        return torch.bmm(score.softmax(-1).unsqueeze(1), h).squeeze(1)

    def forward(self, tokens, speaker):
        tokens, speaker = tokens.long(), speaker.long()
        B, U, L = tokens.shape
        utt = self.encode_words(tokens.view(B * U, L)).view(B, U, -1)
        changed = speaker != torch.roll(speaker, shifts=1, dims=1)
        utt = torch.cat([utt, self.speaker_emb(speaker), changed.unsqueeze(-1).to(utt.dtype)], dim=-1)
        n_utts = tokens.ne(0).any(-1).sum(-1)
        return self.out(run_packed(self.utt_rnn, utt, n_utts))


def tag_loss(logits, acts):
    return nn.functional.cross_entropy(logits.transpose(1, 2), acts.long(), ignore_index=-1)


def build():
    return HierTagger()
