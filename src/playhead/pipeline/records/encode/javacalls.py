"""Calls of Java methods inside the code that Spark generates.

Spark's decimals end at 38 digits and its functions know neither two's complement nor surrogates, but its expressions can call
any method of the JVM: the encoders of its typed API work like this. The classes are internal to Spark, and PySpark is pinned with
them, as is the Commons Text that it brings.
"""

from typing import Any, cast

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_DECIMAL, _INTEGER, _STRING = "java.math.BigDecimal", "java.math.BigInteger", "java.lang.String"
_ESCAPER = "org.apache.commons.text.translate.JavaUnicodeEscaper"
_UTF8 = "org.apache.spark.unsafe.types.UTF8String"


def unscaled_bytes(text: Column, scale: int) -> Column:
    """`new BigDecimal(text).setScale(scale).unscaledValue().toByteArray()`; a fraction that does not fit fails the task."""
    java = _Java()
    unscaled = java.invoke(java.decimal(text, scale), "unscaledValue", java.object(_INTEGER))
    return java.column(java.invoke(unscaled, "toByteArray", java.types.BinaryType))


def decimal_text(text: Column, scale: int) -> Column:
    """`new BigDecimal(text).setScale(scale).toString()`"""
    java = _Java()
    printed = java.invoke(java.decimal(text, scale), "toString", java.object(_STRING))
    return java.column(java.invoke_static(_UTF8, "fromString", java.types.StringType, printed))


def is_ascii(text: Column) -> Column:
    """Answers at the speed of one pass over the bytes, which `length` does not."""
    java = _Java()
    return java.column(java.invoke(java.expression(text), "isFullAscii", java.types.BooleanType))


def escape_surrogates(text: Column) -> Column:
    r"""Every character beyond the basic plane as `\uD83D\uDE00`, in upper case; the others as they are."""
    java = _Java()
    last_plain = java.expression(F.lit(0xFFFF))
    escaper = java.invoke_static(_ESCAPER, "above", java.object(_ESCAPER), last_plain)
    string = java.invoke(java.expression(text), "toString", java.object(_STRING))
    escaped = java.invoke(escaper, "translate", java.object(_STRING), string)
    return java.column(java.invoke_static(_UTF8, "fromString", java.types.StringType, escaped))


class _Java:
    """Expressions of Spark's catalyst, through the gateway of the active session."""

    def __init__(self) -> None:
        self._jvm = cast("Any", SparkSession.active().sparkContext._jvm)
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst.expressions.objects
        self._bridge = self._jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._none = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        self.types = self._jvm.org.apache.spark.sql.types.DataTypes

    def object(self, name: str) -> Any:
        return self._jvm.org.apache.spark.sql.types.ObjectType(self._class(name))

    def decimal(self, text: Column, scale: int) -> Any:
        string = self.invoke(self.expression(text), "toString", self.object(_STRING))
        kind = self.object(_DECIMAL)
        number = self._catalyst.NewInstance(
            self._class(_DECIMAL), self._seq(string), self._seq(), True, kind, self._none
        )
        return self.invoke(number, "setScale", kind, self.expression(F.lit(scale)))

    def invoke(self, target: Any, method: str, returns: Any, *arguments: Any) -> Any:
        return self._catalyst.Invoke(target, method, returns, self._seq(*arguments), self._seq(), True, True, True)

    def invoke_static(self, owner: str, method: str, returns: Any, *arguments: Any) -> Any:
        # At the end: nulls in give null out, the result may be null, the same input gives the same result.
        owner_class, given = self._class(owner), self._seq(*arguments)
        return self._catalyst.StaticInvoke(
            owner_class, returns, method, given, self._seq(), True, True, True, self._none
        )

    def column(self, expression: Any) -> Column:
        return Column(self._bridge.column(expression))

    def expression(self, column: Column) -> Any:
        return self._bridge.expression(column._jc)

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)

    def _seq(self, *items: Any) -> Any:
        return self._jvm.PythonUtils.toSeq(list(items))
