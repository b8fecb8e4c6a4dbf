"""A user's model in a process of its own framework: what it is asked, and what it answers."""
