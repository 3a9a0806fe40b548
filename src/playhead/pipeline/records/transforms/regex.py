"""Java's regular expressions, run in the JVM of the session: Python's are not the same. For topics only, never for records."""

from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from playhead.errors import Invalid


def matches(pattern: str, topic: str) -> bool:
    """The whole of it."""
    return bool(_matcher(pattern, topic).matches())


def replace_first(pattern: str, topic: str, replacement: str) -> str:
    """As RegexRouter does it: nothing, unless the whole topic matches."""
    matcher = _matcher(pattern, topic)
    if not matcher.matches():
        return topic
    try:
        return str(matcher.replaceFirst(replacement))
    except Py4JJavaError as error:
        raise Invalid(
            f"{replacement!r} is no replacement for {pattern!r}: {error.java_exception.getMessage()}",
            "fix transforms.*.replacement",
        ) from None


def _matcher(pattern: str, topic: str) -> Any:
    jvm = cast("Any", SparkSession.active().sparkContext._jvm)
    try:
        return jvm.java.util.regex.Pattern.compile(pattern).matcher(topic)
    except Py4JJavaError as error:
        raise Invalid(
            f"{pattern!r} is no regular expression of Java: {error.java_exception.getMessage().splitlines()[0]}",
            "fix transforms.*.regex or predicates.*.pattern",
        ) from None
