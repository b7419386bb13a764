"""Inspection of checkpoints: views, deep check, ledger, SQL over state, effects of an edit."""
