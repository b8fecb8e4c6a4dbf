"""From run records to a verdict: align, budget, compare. Needs neither framework."""
