"""How much memory a run would take under each strategy, and which one to take. Loads neither framework."""
