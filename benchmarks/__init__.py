"""Our trainers beside code written by hand, and the prices of their switches: python -m benchmarks."""
