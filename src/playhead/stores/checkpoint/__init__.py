"""The checkpoint of a Spark Structured Streaming query. A package, because its log has three versions."""
