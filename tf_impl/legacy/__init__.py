"""What is older than the framework that is trained."""
