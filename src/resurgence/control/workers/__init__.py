"""Worker processes: scheduling, channels, standbys."""
