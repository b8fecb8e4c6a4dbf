from torch import nn


class SyslogLM(nn.Module):
    """Predicts the next log template; frequent templates have the low ids."""

    def __init__(self, n_templates=160, dim=32, hidden=40, cutoffs=(24, 72)):
        super().__init__()
        self.criterion = nn.AdaptiveLogSoftmaxWithLoss(dim, n_templates, cutoffs=list(cutoffs), div_value=2.0)
        self.encoder = nn.Embedding(n_templates, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.to_dim = nn.Linear(hidden, dim)
        self.ln = nn.LayerNorm(dim)

    def features(self, events):
        e = self.encoder(events)
        h, _ = self.rnn(e)
        return self.ln(e + self.to_dim(h).tanh())

    def forward(self, events):
        events = events.long()
        h = self.features(events)
        logp = self.criterion.log_prob(h.flatten(0, 1))
        return logp.unflatten(0, events.shape)


def loss(outputs, targets):
    nll = nn.functional.nll_loss(outputs.transpose(1, 2), targets.long(), ignore_index=0, reduction="none")
    lengths = (targets != 0).sum(1)
    return (nll.sum(1) / lengths).mean()


def build():
    return SyslogLM()
