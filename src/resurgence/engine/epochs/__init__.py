"""The life of an epoch, from its plan to its commit."""
