"""Pipelines on Spark. So far: the pinned jars that the lab runs on."""
