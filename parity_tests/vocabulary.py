"""The largest deviation seen of every entry of the vocabulary, and the page docs/vocabulary.md."""

from __future__ import annotations

from dataclasses import dataclass, field

# Single layers, losses and updates on numbers of order one, in float64: a few dozen roundings.
LIMIT = 1e-12


@dataclass
class Vocabulary:
    """What the tests measured: (group, entry) -> largest deviation of any draw, and what it was held against."""

    deviations: dict[tuple[str, str], float] = field(default_factory=dict)
    referees: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def saw(self, group: str, entry: str, deviation: float, referee: str) -> None:
        """Note one comparison, e.g. ("layer", "conv2d", 3e-16, "TensorFlow, PyTorch, NumPy")."""
        key = (group, entry)
        self.deviations[key] = max(deviation, self.deviations.get(key, 0.0))
        self.referees.setdefault(key, set()).add(referee)
