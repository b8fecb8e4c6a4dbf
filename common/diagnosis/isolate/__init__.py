"""Which step, which tensor: comparisons, and the defects that they are grouped to."""
