"""Ranked search and addressed reads."""
