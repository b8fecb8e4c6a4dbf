"""A user's own PyTorch model: built, described, run layer by layer."""
