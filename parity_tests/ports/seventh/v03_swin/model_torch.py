import torch
import torch.nn as nn


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, ws * ws, C)


def window_reverse(windows, ws, H, W):
    x = windows.view(-1, H // ws, W // ws, ws, ws, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, H, W, windows.shape[-1])


class WindowAttention(nn.Module):
    def __init__(self, dim, window_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window_size - 1) ** 2, num_heads))
        coords = torch.stack(
            torch.meshgrid(torch.arange(window_size), torch.arange(window_size), indexing="ij")
        ).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + window_size - 1
        self.register_buffer(
            "relative_position_index", relative[..., 0] * (2 * window_size - 1) + relative[..., 1]
        )
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x, mask=None):
        B_, N, C = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(B_, N, 3, self.num_heads, C // self.num_heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(N, N, -1)
        attn = attn + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            mask = mask.repeat_interleave(B_ // mask.shape[0], dim=0)
            attn = attn + mask.unsqueeze(1).to(attn.dtype)
        x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B_, N, C)
        return self.proj(x)


class SwinTransformerBlock(nn.Module):
    def __init__(self, dim, resolution, num_heads, window_size=4, shift_size=0, mlp_ratio=2):
        super().__init__()
        self.resolution, self.window_size, self.shift_size = resolution, window_size, shift_size
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window_size, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * mlp_ratio), nn.GELU(), nn.Linear(dim * mlp_ratio, dim))
        attn_mask = None
        if shift_size > 0:
            img_mask = torch.zeros(1, *resolution, 1)
            slices = (slice(0, -window_size), slice(-window_size, -shift_size), slice(-shift_size, None))
            cnt = 0
            for h in slices:
                for w in slices:
                    img_mask[:, h, w, :] = cnt
                    cnt += 1
            mask_windows = window_partition(img_mask, window_size).squeeze(-1)
            attn_mask = mask_windows.unsqueeze(1) - mask_windows.unsqueeze(2)
            attn_mask = attn_mask.masked_fill(attn_mask != 0, -100.0)
        self.register_buffer("attn_mask", attn_mask)

    def forward(self, x):
        shortcut = x
        x = self.norm1(x)
        s = self.shift_size
        if s > 0:
            x = torch.roll(x, shifts=(-s, -s), dims=(1, 2))
        x = window_partition(x, self.window_size)
        x = window_reverse(self.attn(x, mask=self.attn_mask), self.window_size, *self.resolution)
        if s > 0:
            x = torch.roll(x, shifts=(s, s), dims=(1, 2))
        x = shortcut + x
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        x0 = x[:, 0::2, 0::2, :]
        x1 = x[:, 1::2, 0::2, :]
        x2 = x[:, 0::2, 1::2, :]
        x3 = x[:, 1::2, 1::2, :]
        return self.reduction(self.norm(torch.cat([x0, x1, x2, x3], -1)))


class Net(nn.Module):
    def __init__(self, embed_dim=16, num_classes=5):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, embed_dim, kernel_size=2, stride=2)
        self.patch_norm = nn.LayerNorm(embed_dim)
        self.layers = nn.Sequential(
            SwinTransformerBlock(embed_dim, (8, 8), 2),
            SwinTransformerBlock(embed_dim, (8, 8), 2, shift_size=2),
            PatchMerging(embed_dim),
            SwinTransformerBlock(2 * embed_dim, (4, 4), 4),
        )
        self.norm = nn.LayerNorm(2 * embed_dim)
        self.head = nn.Linear(2 * embed_dim, num_classes)

    def forward(self, image):
        x = self.patch_embed(image).permute(0, 2, 3, 1)
        x = self.layers(self.patch_norm(x))
        x = self.norm(x.mean((1, 2)))
        return self.head(x)
