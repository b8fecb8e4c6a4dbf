"""Imports from a package of the user's that is called as one of ours."""

from parity.common.blocks import build

__all__ = ["build"]
