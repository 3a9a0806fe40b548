"""The JDBC source connectors of Confluent and Aiven, read by Spark: same options, same positions, same order of rows."""
