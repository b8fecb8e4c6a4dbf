import torch
from torch import nn


class ConvLSTMCell(nn.Module):
    def __init__(self, inputs, hidden, size=3):
        super().__init__()
        self.hidden = hidden
        self.conv_x = nn.Conv2d(inputs, 4 * hidden, size, padding=size // 2)
        self.conv_h = nn.Conv2d(hidden, 4 * hidden, size, padding=size // 2, bias=False)
        with torch.no_grad():
            self.conv_x.bias.zero_()[hidden : 2 * hidden] = 1

    def init_state(self, x):
        zeros = x.new_zeros(len(x), self.hidden, *x.shape[-2:])
        return zeros, zeros

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.conv_x(x) + self.conv_h(h)).chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, c


class Nowcast(nn.Module):
    def __init__(self, side=6, future=3, channels=6):
        super().__init__()
        self.side, self.future = side, future
        self.encoder = ConvLSTMCell(1, channels)
        self.decoder = ConvLSTMCell(1, channels)
        self.draw = nn.Conv2d(channels, 1, 1)

    def forward(self, past):
        frames = past.unflatten(-1, (1, self.side, self.side))
        state = self.encoder.init_state(frames[:, 0])
        for frame in frames.unbind(1):
            state = self.encoder(frame, state)
        h, c = state
        forecast = []
        for _ in range(self.future):
            h, _ = self.decoder(frame, (h, c))
            frame = (frame + self.draw(h)).relu()
            forecast.append(frame.flatten(1))
        return torch.stack(forecast, dim=1)


def loss(outputs, targets):
    error = (outputs - targets).abs()
    return ((1 + targets).clamp(max=3) * (error + error**2)).mean()
