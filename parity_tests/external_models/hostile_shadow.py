"""Imports from a package of the user's that is called as one of ours."""

from parity.blocks import build

__all__ = ["build"]
