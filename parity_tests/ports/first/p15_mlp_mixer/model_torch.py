from torch import nn


class Mlp(nn.Sequential):
    def __init__(self, size, hidden):
        super().__init__(nn.Linear(size, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, size))


class MixerBlock(nn.Module):
    def __init__(self, tokens, width, token_hidden, channel_hidden):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.token_mlp = Mlp(tokens, token_hidden)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.channel_mlp = Mlp(width, channel_hidden)

    def forward(self, x):
        x = x + self.token_mlp(self.norm1(x.transpose(1, 2))).transpose(1, 2)
        return x + self.channel_mlp(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width=16, depth=4, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*[MixerBlock(16, width, 32, 48) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))
