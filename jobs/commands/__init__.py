"""The commands of `octavo`, one module a topic."""
