"""Placement -> processes: ranks on this machine, worker processes, the flags of both frameworks."""
