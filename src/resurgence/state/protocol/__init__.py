"""The checkpoint protocol: ownership, epochs, decisions."""
