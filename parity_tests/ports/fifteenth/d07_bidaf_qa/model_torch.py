import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Encoder(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.rnn = nn.GRU(inputs, hidden, batch_first=True, bidirectional=True)

    def forward(self, x, lengths=None):
        if lengths is None:
            return self.rnn(x)[0]
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])[0]


class BiDAF(nn.Module):
    def __init__(self, vocabulary=80, dim=16, hidden=8):
        super().__init__()
        self.words = nn.Embedding(vocabulary, dim)
        self.dropout = nn.Dropout(0.2)
        self.encoder = Encoder(dim, hidden)
        self.sim_c = nn.Linear(2 * hidden, 1, bias=False)
        self.sim_q = nn.Linear(2 * hidden, 1, bias=False)
        self.sim_cq = nn.Parameter(torch.randn(2 * hidden) * 0.1)
        self.modeling = Encoder(8 * hidden, hidden)
        self.final = Encoder(2 * hidden, hidden)
        self.start = nn.Linear(10 * hidden, 1)
        self.end = nn.Linear(10 * hidden, 1)

    def attend(self, c, q, c_pad, q_pad):
        s = self.sim_c(c) + self.sim_q(q).mT + torch.einsum("bcd,d,bqd->bcq", c, self.sim_cq, q)
        a = s.masked_fill(q_pad[:, None], float("-inf")).softmax(-1)
        c2q = a @ q
        b = s.amax(-1).masked_fill(c_pad, float("-inf")).softmax(-1)
        q2c = torch.einsum("bc,bcd->bd", b, c).unsqueeze(1)
        return torch.cat([c, c2q, c * c2q, c * q2c], -1)

    def forward(self, context, question):
        context, question = context.long(), question.long()
        c_pad, q_pad = context == 0, question == 0
        c_len, q_len = (~c_pad).sum(1), (~q_pad).sum(1)
        c = self.encoder(self.dropout(self.words(context)), c_len)
        q = self.encoder(self.dropout(self.words(question)), q_len)
        g = self.attend(c, q, c_pad, q_pad)
        m = self.modeling(self.dropout(g), c_len)
        m2 = self.final(self.dropout(m))
        logits = torch.stack([self.start(torch.cat([g, m], -1)), self.end(torch.cat([g, m2], -1))], 1)
        return logits.squeeze(-1) - 1e9 * c_pad.unsqueeze(1)


def loss(logits, y):
    start, end = logits.unbind(1)
    y = y.long()
    return F.cross_entropy(start, y[:, 0]) + F.cross_entropy(end, y[:, 1])
