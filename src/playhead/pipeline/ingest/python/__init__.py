"""Sources written in Python, on Spark."""
