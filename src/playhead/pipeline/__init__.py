"""Connectors on Spark. A connector file for a Kafka Connect worker runs here, with the same records and the same positions.

`run.py` opens the Spark session and the ledger. `supervisor.py` runs every connector in a thread of its own and drives its steps
(`step.py`). `ingest/` has the sources and `deliver/` the sinks, each with `steps.py` for the driver and `task.py` for the
executors. `records/` converts between rows and bytes. `spec.py`, `classes.py` and `options.py` check connector files,
`connect_home.py` reads the worker file. `spark.py` is the session, `slots.py` its slots, `jars.py` the pinned jars.
`task_link.py` connects the tasks of a step with the driver. `stop.py` lists runs and requests a stop; it needs no Spark.
"""
