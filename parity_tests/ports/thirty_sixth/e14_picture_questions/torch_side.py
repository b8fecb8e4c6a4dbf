import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class PictureQuestions(nn.Module):
    def __init__(self, words=15, answers=6, width=12):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, width, 3), nn.ReLU()
        )
        self.embed = nn.Embedding(words, 8)
        self.gru = nn.GRU(8, width, batch_first=True)
        self.classify = nn.Sequential(nn.Linear(3 * width, 16), nn.Tanh(), nn.Linear(16, answers))

    def forward(self, picture, question):
        regions = self.cnn((picture / 128 - 1).permute(0, 3, 1, 2)).flatten(2)  # N, width, 9

        question = question.long()
        lengths = (question != 0).sum(1).cpu()
        packed = pack_padded_sequence(self.embed(question), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=question.shape[1])
        q = states.mean(dim=1)

        look = torch.einsum("ncr,nc->nr", regions, q).div(q.shape[1] ** 0.5).softmax(-1)
        seen = torch.einsum("ncr,nr->nc", regions, look)
        return self.classify(torch.cat([seen, q, seen * q], dim=1))


def build():
    return PictureQuestions()


def optimizer(parameters):
    parameters = [p for p in parameters if p.requires_grad]
    return torch.optim.SGD(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 5e-3},  # the L2 of the kernels
            {"params": [p for p in parameters if p.ndim <= 1]},
        ],
        lr=0.05,
        momentum=0.9,
    )
