"""What Kafka's transforms do to a batch, one file a theme: over Arrow columns under a schema, else record by record."""
