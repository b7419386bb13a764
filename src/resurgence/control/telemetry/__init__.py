"""Events, incidents, metrics, webhooks."""
