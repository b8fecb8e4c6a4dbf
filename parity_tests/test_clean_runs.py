"""Clean runs are never called divergent, and runs that fail say why."""
