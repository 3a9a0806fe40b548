"""The JDBC source connectors of Confluent and Aiven on Spark: same options, same positions, same order of rows."""
