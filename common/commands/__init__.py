"""Subcommands of `parity` that stand by themselves; each module adds its own."""
