"""A model and its port held against each other: `parity pair`, its diagnosis, the assertions of tests."""
