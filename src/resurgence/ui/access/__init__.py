"""Sessions of the console: login, cookies, security headers."""
