"""The ranking of the contract by brute force: nothing of `engine.search`, no shortcut, no index."""
