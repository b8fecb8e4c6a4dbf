"""Jobs of a SLURM cluster: submitted, and what became of them."""
