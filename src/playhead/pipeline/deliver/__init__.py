"""Sinks on Spark: records of topics into files, objects and tables, exactly once."""
