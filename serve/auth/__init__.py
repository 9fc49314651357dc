"""Credentials: the token file, JWT access tokens of issuers, and the deny list."""
