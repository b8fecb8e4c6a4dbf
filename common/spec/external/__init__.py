"""How models that are no spec of ours are described: where they are found, what they consist of, how they map."""
