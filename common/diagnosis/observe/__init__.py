"""What is seen of two runs: replays, and what is injected into them."""
