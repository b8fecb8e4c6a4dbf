import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, channels, hidden, width):
        super().__init__()
        self.places = nn.Linear(channels, width)
        self.query = nn.Linear(hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)
        self.beta = nn.Linear(hidden, 1)

    def forward(self, features, places, h):
        alpha = self.energy((places + self.query(h).unsqueeze(1)).tanh()).squeeze(-1).softmax(-1)
        context = torch.bmm(alpha.unsqueeze(1), features).squeeze(1)
        return self.beta(h).sigmoid() * context, alpha


class ShowAttendTell(nn.Module):
    def __init__(self, vocabulary=10, channels=10, embedding=12, hidden=16, width=11):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.attention = Attention(channels, hidden, width)
        self.rnn = nn.LSTMCell(embedding + channels, hidden)
        nn.init.zeros_(self.rnn.bias_hh).requires_grad_(False)  # one bias, as in Keras
        self.start_h = nn.Linear(channels, hidden)
        self.start_c = nn.Linear(channels, hidden)
        self.state_out = nn.Linear(hidden, embedding)
        self.context_out = nn.Linear(channels, embedding, bias=False)
        self.vocabulary = nn.Linear(embedding, vocabulary)
        self.drop = nn.Dropout(0.3)

    def decode(self, features, words):
        places = self.attention.places(features)
        average = features.mean(1)
        h, c = self.start_h(average).tanh(), self.start_c(average).tanh()
        outputs, alphas = [], []
        for word in self.embed(words).unbind(1):
            context, alpha = self.attention(features, places, h)
            h, c = self.rnn(torch.cat([word, context], 1), (h, c))
            outputs.append(word + self.state_out(self.drop(h)) + self.context_out(context))
            alphas.append(alpha)
        return self.vocabulary(torch.stack(outputs, 1).tanh()), torch.stack(alphas, 1)

    def forward(self, features, words):
        return self.decode(features, words)[0]


def step(model, batch):
    inputs, y = batch
    logits, alphas = model.decode(inputs["features"], inputs["words"])
    likelihood = F.cross_entropy(logits.transpose(1, 2), y, ignore_index=0)
    seen = (alphas * (y != 0).unsqueeze(-1)).sum(1)
    return {"loss": likelihood + 0.7 * (seen - 1).square().mean()}
