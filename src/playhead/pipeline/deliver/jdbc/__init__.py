"""The JDBC sink connectors of Confluent and Aiven, into PostgreSQL and SQLite, exactly once."""
