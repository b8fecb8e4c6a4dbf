"""Experiments on the functions that a live torch model calls: each call made otherwise."""
