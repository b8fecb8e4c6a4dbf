import torch
from torch import nn
from torch.nn import functional as F


class HighwayStack(nn.Module):
    def __init__(self, size, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(depth))
        for l in self.layers:
            nn.init.xavier_uniform_(l.weight)
            with torch.no_grad():
                l.bias[:size].zero_()
                l.bias[size:].fill_(-2.0)

    def forward(self, x):
        for l in self.layers:
            h, t = l(x).chunk(2, dim=-1)
            x = torch.lerp(x, h.relu(), t.sigmoid())
        return x


class HeadlineNet(nn.Module):
    def __init__(
        self, vocab=300, alphabet=30, topics=5, d_word=20, d_char=8, char_filters=12, grams=None, p=0.3
    ):
        if grams is None:
            grams = {"2": 12, "3": 12, "4": 10}
        super().__init__()
        d = d_word + char_filters
        self.embed = nn.ModuleDict(
            {"char": nn.Embedding(alphabet, d_char), "word": nn.Embedding(vocab, d_word)}
        )
        self.char_cnn = nn.Conv1d(d_char, char_filters, 3)
        self.highway = HighwayStack(d)
        self.grams = nn.ModuleDict({k: nn.Conv2d(1, n, (int(k), d)) for k, n in grams.items()})
        n = sum(grams.values()) + d
        self.classifier = nn.Sequential(
            nn.LayerNorm(n), nn.Dropout(p), nn.Linear(n, 24), nn.SiLU(), nn.Linear(24, topics)
        )

    def encode_chars(self, chars):
        b, t, k = chars.shape
        flat = chars.reshape(b * t, k)
        e = self.embed["char"](flat.long()).masked_fill((flat == 0).unsqueeze(-1), 0.0)
        # tanh is monotone: pool first, it is cheaper
        return self.char_cnn(e.mT).amax(-1).tanh().view(b, t, -1)

    def forward(self, words, chars):
        x = torch.cat([self.embed["word"](words.long()), self.encode_chars(chars)], -1)
        x = self.highway(x)
        feats = [conv(x[:, None]).squeeze(3).max(dim=2).values.relu() for conv in self.grams.values()]
        return self.classifier(torch.cat([*feats, x.mean(1)], 1))


def build():
    return HeadlineNet()


def loss(logits, y):
    return F.cross_entropy(logits, y.view(-1).long(), label_smoothing=0.1)


def optimizer(parameters):
    opt = torch.optim.SGD(parameters, lr=0.05, weight_decay=2e-3)
    return opt, torch.optim.lr_scheduler.StepLR(opt, step_size=6, gamma=0.8)
