import torch
from torch import nn
from torch.nn import functional as F


class TextCNN(nn.Module):
    def __init__(self, vocabulary=150, dim=24, filters=16, widths=(2, 3, 5), classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        # Kim's way: one input channel, kernels as wide as the embedding
        self.convs = nn.ModuleList([nn.Conv2d(1, filters, (w, dim)) for w in widths])
        self.fc1 = nn.Linear(filters * len(widths), 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, words):
        x = self.embedding(words).unsqueeze(1)
        features = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        features = [F.max_pool1d(f, f.size(2)).squeeze(2) for f in features]
        return self.fc2(F.elu(self.fc1(torch.cat(features, 1))))
