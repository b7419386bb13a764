"""The format `debezium_json`."""
