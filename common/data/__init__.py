"""Where samples come from, and which replica gets which of them at which step."""
