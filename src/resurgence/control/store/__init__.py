"""The metadata database: jobs, events, leases."""
