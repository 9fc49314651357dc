"""Octavo's pure library: no Ray, no MCP, no web framework."""
