"""The Kafka driver: the only place that imports confluent_kafka."""
