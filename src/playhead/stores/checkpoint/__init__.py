"""The checkpoint of a Spark Structured Streaming query; a folder, because its log has three versions."""
