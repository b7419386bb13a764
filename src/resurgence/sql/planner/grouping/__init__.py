"""GROUP BY: aggregates, grouping sets."""
