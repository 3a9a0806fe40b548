"""Rows -> the bytes that Connect writes: as columns of Spark, and over Arrow (`converters`)."""
