"""Child processes: one way to start them, one message channel, a limit to every wait, failures over the pipe."""
