"""Window functions and window table functions, of each dialect."""
