"""Pipelines on Spark: the connector file that a Connect worker runs, run here with the same records and the same position.

`session.py` the one Spark session and its slots; `sources/` where rows come from and how far they may be read; `records/` rows ->
the bytes Connect writes; `ingest.py` one exactly-once step; `run.py` the loop over many connectors; `jars.py` the pinned jars.
"""
