"""Judged cases for each language with a field."""
