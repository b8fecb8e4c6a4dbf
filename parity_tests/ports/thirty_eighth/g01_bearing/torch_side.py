import torch
import torch.nn.functional as F
from torch import nn


class LogSpectrogram(nn.Module):
    """Short frames, zero-padded at their end to the length of the FFT."""

    def __init__(self, frame=48, hop=24, n_fft=64):
        super().__init__()
        self.frame, self.hop, self.n_fft = frame, hop, n_fft
        self.window = torch.hann_window(frame)

    def forward(self, wave):
        frames = wave.unfold(-1, self.frame, self.hop) * self.window
        db = torch.log(torch.fft.rfft(frames, n=self.n_fft).abs() + 1e-3)
        std, mean = torch.std_mean(db, dim=(1, 2), keepdim=True, correction=0)
        return ((db - mean) / (std + 1e-5)).unsqueeze(1)


class DepthwiseSeparable(nn.Sequential):
    def __init__(self, cin, cout, mult, stride=1, bias=True):
        # "same" as TensorFlow pads it: at stride 2 and even sizes only below and to the right
        pad = nn.ZeroPad2d(1 if stride == 1 else (0, 1, 0, 1))
        super().__init__(
            pad,
            nn.Conv2d(cin, cin * mult, 3, stride=stride, groups=cin, bias=False),
            nn.Conv2d(cin * mult, cout, 1, bias=bias),
        )


class BearingNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.spec = LogSpectrogram()
        self.block1 = nn.Sequential(
            DepthwiseSeparable(1, 8, 4),
            nn.BatchNorm2d(8, eps=1e-3, momentum=0.1),
            nn.PReLU(8),
            nn.MaxPool2d(2),
        )
        self.block2 = nn.Sequential(
            DepthwiseSeparable(8, 16, 2, stride=2, bias=False),
            nn.BatchNorm2d(16, eps=1e-3, momentum=0.1),
            nn.PReLU(16),
        )
        self.fc = nn.Linear(16, classes)

    def forward(self, wave):
        h = self.block2(self.block1(self.spec(wave)))
        return self.fc(F.adaptive_avg_pool2d(h, 1).flatten(1))


criterion = nn.CrossEntropyLoss(label_smoothing=0.1)


def build():
    torch.manual_seed(0)
    return BearingNet()
