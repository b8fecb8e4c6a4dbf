"""What collective operations do, how fast that is counted, and whether it was right. Loads neither framework."""
