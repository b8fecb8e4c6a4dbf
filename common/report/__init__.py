"""Reports of a Result: terminal, HTML, JSON, JUnit."""
