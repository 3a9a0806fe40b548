"""One Spark session for a module of tests; its JVM ends with it, so that no other test inherits its settings."""

import gc
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    from playhead.pipeline.spark import SparkOptions, spark_session

    with spark_session(SparkOptions("local[2]")) as session:
        session.sparkContext.setLogLevel("OFF")
        yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
