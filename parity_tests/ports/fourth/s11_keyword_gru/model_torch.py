import torch
from torch import nn
from torch.nn import functional as F


class KeywordSpotter(nn.Module):
    def __init__(self, mels=20, keywords=8):
        super().__init__()
        self.glu1 = nn.Conv1d(mels, 32, 5, stride=2)
        self.norm = nn.GroupNorm(4, 16, eps=1e-5)
        self.glu2 = nn.Conv1d(16, 48, 3, padding="same")
        self.rnn = nn.GRU(24, 14, batch_first=True, bidirectional=True)
        self.hidden = nn.Linear(28, 12)
        self.score = nn.Linear(12, 1, bias=False)
        self.keyword = nn.Linear(28, keywords)

    def forward(self, mel):
        x = mel.clamp_min(1e-5).log().transpose(1, 2)
        x = F.glu(self.glu1(F.pad(x, (1, 2))), dim=1)
        x = F.glu(self.glu2(self.norm(x)), dim=1)
        x, _ = self.rnn(x.transpose(1, 2))
        weights = self.score(torch.tanh(self.hidden(x))).softmax(1)
        return self.keyword(torch.einsum("nts,ntc->nc", weights, x))


def optimizer(parameters):
    if isinstance(parameters, nn.Module):
        parameters = parameters.parameters()
    return torch.optim.Adadelta(parameters, lr=0.5, rho=0.9, eps=1e-6)
