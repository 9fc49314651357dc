"""Passages and languages."""
