"""Scaling analysis: statistics, laws, causes of loss, projection, time-to-target, baselines."""
