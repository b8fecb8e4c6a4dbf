from torch import nn
from torch.nn import functional as F


class ConvLSTM(nn.Module):
    def __init__(self, inputs, hidden, size=3):
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Conv2d(inputs, 4 * hidden, size, padding=size // 2)
        self.from_state = nn.Conv2d(hidden, 4 * hidden, size, padding=size // 2, bias=False)
        self.state = None

    def initial(self, x):
        shape = (x.shape[0], self.hidden, *x.shape[-2:])
        if self.state is None or self.state[0].shape != shape:
            self.state = (x.new_zeros(shape), x.new_zeros(shape))
        return self.state

    def forward(self, frames):
        h, c = self.initial(frames)
        for x in frames.unbind(1):
            i, f, g, o = (self.from_input(x) + self.from_state(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        self.state = (h.detach(), c.detach())
        return h


class Nowcast(nn.Module):
    def __init__(self, channels=2, levels=4):
        super().__init__()
        self.frame = nn.Conv2d(channels, 8, 3, padding=1)
        self.memory = ConvLSTM(8, 10)
        self.reduce = nn.Conv2d(10, 12, 3, stride=2)
        self.intensity = nn.Linear(12, levels)

    def forward(self, radar):
        n, steps = radar.shape[:2]
        x = radar.movedim(-1, 2).flatten(0, 1)
        x = F.relu(self.frame(x)).unflatten(0, (n, steps))
        x = F.relu(self.reduce(self.memory(x)))
        return self.intensity(x.amax((-2, -1)))
