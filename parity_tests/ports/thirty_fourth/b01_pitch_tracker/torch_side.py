import torch
import torch.nn.functional as F
from torch import nn


class PitchNet(nn.Module):
    def __init__(self, n_fft=64, hop=16, channels=24, hidden=16, bins=16):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.norm = nn.LayerNorm(n_fft // 2 + 1)
        self.subsample = nn.Conv1d(n_fft // 2 + 1, channels, 3, stride=2, padding=1)
        self.rnn = nn.GRU(channels, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, bins + 1)

    def spectrogram(self, wav):
        window = torch.hann_window(self.n_fft, dtype=wav.dtype, device=wav.device)
        spec = torch.stft(wav, self.n_fft, self.hop, window=window, center=False, return_complex=True)
        return (spec.real.square() + spec.imag.square() + 1e-3).log()  # B, F, T

    def forward(self, audio):
        feats = self.norm(self.spectrogram(audio).mT).mT
        h = F.relu(self.subsample(feats))
        h, _ = self.rnn(h.mT)
        return self.head(h)


def pitch_loss(scores, pitch):
    pitch_scores, voicing = scores[..., :-1], scores[..., -1]
    pitch = pitch.to(scores)
    voiced = pitch > 0
    centres = torch.arange(1, pitch_scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    soft = torch.softmax(-0.5 * ((pitch[voiced][:, None] - centres) / 0.8) ** 2, dim=-1)
    ce = F.cross_entropy(pitch_scores[voiced], soft) if voiced.any() else scores.new_zeros(())
    return ce + 2 * F.binary_cross_entropy_with_logits(voicing, voiced.to(scores))


def build():
    return PitchNet()
