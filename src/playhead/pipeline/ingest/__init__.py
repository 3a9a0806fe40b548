"""Sources on Spark: rows of tables and lines of files into topics, exactly once."""
