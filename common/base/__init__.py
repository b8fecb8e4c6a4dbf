"""What everything stands on: errors, whole files, amounts of memory, keyed random numbers, being asked to stop."""
