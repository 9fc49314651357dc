"""Benchmarks: programs that print figures, never assertions."""
