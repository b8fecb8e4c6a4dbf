"""Where two runs part, and why. `diagnose.py` is the way through it; `causes.py` the catalogue."""
