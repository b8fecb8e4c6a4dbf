import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

NEG = -1e4
MAX_WIDTH = 5


def ffnn(dim, hidden):
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, 1))


class SpanEncoder(nn.Module):
    def __init__(self, vocab, dim, hidden, feature):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.head_scorer = nn.Linear(2 * hidden, 1, bias=False)
        self.width_embeddings = nn.Embedding(MAX_WIDTH, feature)
        self.out_dim = 4 * hidden + dim + feature

    def contextualize(self, emb, lengths):
        packed = pack_padded_sequence(emb, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=emb.size(1))[0]

    def forward(self, tokens, first, last):
        emb = self.word_embeddings(tokens)
        ctx = self.contextualize(emb, tokens.ne(0).sum(1))
        pos = torch.arange(tokens.size(1), device=tokens.device)
        outside = (pos < first.unsqueeze(-1)) | (pos > last.unsqueeze(-1))
        attn = self.head_scorer(ctx).transpose(1, 2).expand(-1, first.size(1), -1)
        attn = attn.masked_fill(outside, NEG).softmax(-1)
        rows = torch.arange(tokens.size(0), device=tokens.device).unsqueeze(1)
        width = self.width_embeddings((last - first).clamp(max=MAX_WIDTH - 1))
        return torch.cat([ctx[rows, first], ctx[rows, last], torch.bmm(attn, emb), width], -1)


class CorefModel(nn.Module):
    def __init__(self, vocab=300, dim=32, hidden=16, feature=8):
        super().__init__()
        self.spans = SpanEncoder(vocab, dim, hidden, feature)
        d = self.spans.out_dim
        self.register_buffer("buckets", torch.tensor([1, 2, 3, 4, 5, 8]), persistent=False)
        self.distance_embeddings = nn.Embedding(7, feature)
        self.speaker_embeddings = nn.Embedding(2, feature)
        self.mention_scorer = ffnn(d, 32)
        self.antecedent_scorer = ffnn(3 * d + 2 * feature, 40)
        self.coarse = nn.Linear(d, d, bias=False)
        self.refine_gate = nn.Linear(2 * d, d)

    def antecedent_scores(self, g, features, candidates):
        n = g.size(1)
        gi = g.unsqueeze(2).expand(-1, -1, n, -1)
        gj = g.unsqueeze(1).expand(-1, n, -1, -1)
        fine = self.antecedent_scorer(torch.cat([gi, gj, gi * gj, features], -1)).squeeze(-1)
        coarse = self.coarse(g) @ g.mT
        m = self.mention_scorer(g)
        scores = (fine + coarse + m + m.mT).masked_fill(~candidates, NEG)
        return F.pad(scores, (1, 0), value=0.0)

    def pair_features(self, speakers):
        b, n = speakers.shape
        idx = torch.arange(n, device=speakers.device)
        offset = torch.bucketize(idx.view(-1, 1) - idx, self.buckets)
        same = speakers.unsqueeze(2).eq(speakers.unsqueeze(1)).long()
        dist = self.distance_embeddings(offset).expand(b, -1, -1, -1)
        return torch.cat([dist, self.speaker_embeddings(same)], -1)

    def forward(self, words, starts, ends, speakers):
        words, starts, ends, speakers = words.long(), starts.long(), ends.long(), speakers.long()
        real = starts.ge(0)
        g = self.spans(words, starts.clamp(min=0), ends.clamp(min=0))
        candidates = (real.unsqueeze(2) & real.unsqueeze(1)).tril(-1)
        features = self.pair_features(speakers)

        p = self.antecedent_scores(g, features, candidates).softmax(-1)
        attended = p[..., :1] * g + torch.bmm(p[..., 1:], g)
        f = torch.sigmoid(self.refine_gate(torch.cat([g, attended], -1)))
        return self.antecedent_scores(torch.lerp(attended, g, f), features, candidates)


def loss(scores, clusters):
    clusters = clusters.long()
    gold = clusters.unsqueeze(2).eq(clusters.unsqueeze(1)) & clusters.gt(0).unsqueeze(2)
    gold = gold.tril(-1)
    gold = torch.cat([~gold.any(-1, keepdim=True), gold], -1)
    marginal = scores.masked_fill(~gold, NEG).logsumexp(-1)
    nll = scores.logsumexp(-1) - marginal
    return nll[clusters.ge(0)].mean()


def build():
    return CorefModel()
