"""The Kafka Connect driver: the only place that imports the HTTP client."""
