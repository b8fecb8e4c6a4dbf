"""What several suites use: runs that they share, synthetic records, commands, processes, comparisons of layers."""

from __future__ import annotations

from pathlib import Path

# The repository.
ROOT = Path(__file__).resolve().parents[2]
