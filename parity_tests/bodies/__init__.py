"""Functions that tests have run in other processes: in ranks, in workers, in place of a training."""
