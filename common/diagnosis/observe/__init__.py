"""What is observed of two runs: replays, and what is injected into them."""
