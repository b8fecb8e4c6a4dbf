"""The pages of `docs/` that tests write: rows, and what was measured of them."""
