import torch.nn as nn


class Chomp1d(nn.Module):
    """Takes off what the padding added, so that the convolution is causal."""

    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, self.chomp_size :].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation):
        super().__init__()
        padding = (kernel_size - 1) * dilation
        self.net = nn.Sequential(
            nn.Conv1d(n_inputs, n_outputs, kernel_size, padding=padding, dilation=dilation),
            Chomp1d(padding),
            nn.ReLU(),
            nn.Conv1d(n_outputs, n_outputs, kernel_size, padding=padding, dilation=dilation),
            Chomp1d(padding),
            nn.ReLU(),
        )
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


class TCN(nn.Module):
    def __init__(self, channels=3, filters=(16, 16, 24), kernel_size=3):
        super().__init__()
        sizes = [channels, *filters]
        self.network = nn.Sequential(
            *[TemporalBlock(sizes[i], sizes[i + 1], kernel_size, 2**i) for i in range(len(filters))]
        )
        self.linear = nn.Linear(filters[-1], 1)

    def forward(self, x):
        y = self.network(x.transpose(1, 2))
        return self.linear(y[:, :, -1])
