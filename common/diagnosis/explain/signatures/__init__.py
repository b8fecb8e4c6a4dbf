"""Signatures: one function a cause, of a finding under suspicion."""
