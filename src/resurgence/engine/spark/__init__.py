"""The JVM and the Spark session in it."""
