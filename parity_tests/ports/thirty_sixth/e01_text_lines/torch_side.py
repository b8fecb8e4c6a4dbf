import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 9


class LineReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
        )
        self.squeeze = nn.Linear(24, 16)
        self.context = nn.LSTM(16, 10, batch_first=True, bidirectional=True)
        for name, p in self.context.named_parameters():
            if name.startswith("bias_hh"):  # Keras has one bias a gate
                nn.init.zeros_(p)
                p.requires_grad_(False)
        self.characters = nn.Linear(20, CLASSES)

    def forward(self, image):
        x = self.features(image.permute(0, 3, 1, 2))  # N, 8, 3, 20
        x = x.permute(0, 3, 2, 1).flatten(2)  # N, 20, 3 * 8
        x = F.relu(self.squeeze(x))
        x, _ = self.context(x)
        return self.characters(x)


def build():
    return LineReader()


def ctc(logits, labels):
    log_probs = logits.log_softmax(-1).transpose(0, 1)  # frames first
    labels = labels.long()
    lengths = (labels != 0).sum(1)
    frames = torch.full_like(lengths, logits.shape[1])
    return F.ctc_loss(log_probs, labels, frames, lengths, blank=0)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True)
