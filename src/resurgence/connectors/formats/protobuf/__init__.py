"""The format `protobuf`."""
