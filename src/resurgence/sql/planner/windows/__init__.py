"""Window functions and windowing table functions of every supported dialect."""
