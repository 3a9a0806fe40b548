"""Sources on Spark: write rows of tables and lines of files into topics, exactly once."""
