"""The format `avro`."""
