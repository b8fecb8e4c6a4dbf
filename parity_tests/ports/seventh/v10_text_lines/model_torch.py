import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, img_channels=1, n_class=10, hidden=10):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(img_channels, 8, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d((2, 1)),
            nn.Dropout2d(0.1),
        )
        self.map_to_seq = nn.Linear(36, 16)
        self.rnn1 = nn.GRU(16, hidden, bidirectional=True, batch_first=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.rnn2 = nn.GRU(2 * hidden, hidden, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.dense = nn.Linear(2 * hidden, n_class)

    def forward(self, line):
        conv = self.cnn(line)  # b, c, h, w
        b, c, h, w = conv.size()
        seq = conv.permute(0, 3, 2, 1).reshape(b, w, h * c)
        seq = F.relu(self.map_to_seq(seq))
        recurrent, _ = self.rnn1(seq)
        recurrent, _ = self.rnn2(self.norm(recurrent))
        output = self.dense(self.dropout(recurrent))
        return F.log_softmax(output, dim=1)
