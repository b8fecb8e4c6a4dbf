"""Imports from a package of the user's that is called as one of ours."""

from common.blocks import build

__all__ = ["build"]
