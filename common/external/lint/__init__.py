"""What two built models are set to, and where that differs."""
