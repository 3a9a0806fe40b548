"""Rows -> the bytes that Connect's converters write, as columns of Spark: no line of Python per record."""
