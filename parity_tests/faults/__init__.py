"""Seeded faults: silent training bugs, patched into a worker's process around one run.

Behaviours and numbers are those of the list of historic bugs that the toolkit answers for.
"""
