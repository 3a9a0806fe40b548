"""The command line: parse, call, render. No Kafka, HTTP, SQL or Spark import here."""
