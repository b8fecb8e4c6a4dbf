"""Whether two trainings that cannot be equal are equivalent: seeds, margins, tests, verdicts."""
