"""Canonical state: named NumPy arrays in one canonical layout."""
