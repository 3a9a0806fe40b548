"""What each option of the S3 sink connector means to the Spark engine: honoured, without effect here, or refused by name.

An option that is not on these lists is refused too: Connect would ignore a typing mistake, and the user would find out late.
"""

from playhead.pipeline.option_reading import OF_EVERY, Known

HONOURED = frozenset(
    [
        "format.class",
        "storage.class",
        "store.url",
        "s3.bucket.name",
        "s3.region",
        "s3.part.size",
        "s3.part.retries",
        "s3.compression.type",
        "s3.compression.level",
        "parquet.codec",
        "format.bytearray.extension",
        "format.bytearray.separator",
        "partitioner.class",
        "partition.field.name",
        "partition.duration.ms",
        "path.format",
        "timezone",
        "locale",
        "timestamp.extractor",
        "timestamp.field",
        "topics.dir",
        "directory.delim",
        "file.delim",
        "filename.offset.zero.pad.width",
        "flush.size",
        "rotate.interval.ms",
        "rotate.schedule.interval.ms",
        "rotate.file.on.partition.change",
        "behavior.on.null.values",
    ]
)
# What the run itself reads: which topics, how, and what becomes of a record that does not fit.
OF_RUN = frozenset(["topics", "topics.regex", "key.converter", "value.converter"])
OF_RUN_PREFIXES = ("key.converter.", "value.converter.", "consumer.override.", "producer.override.", "errors.")
HARMLESS = OF_EVERY | frozenset(
    [
        "retry.backoff.ms",
        "s3.retry.backoff.ms",
        "s3.http.send.expect.continue",
        "shutdown.timeout.ms",
        "schema.cache.size",
        "schemas.cache.config",
        "schema.generator.class",
        "avro.codec",
        "enhanced.avro.schema.support",
        "connect.meta.data",
        "header.converter",
        "keys.format.class",
        "headers.format.class",
    ]
)
HARMLESS_PREFIXES = ("header.converter.", "s3.elastic.buffer.")
# Options that may be there with the one value that means "off" or "as always".
ONLY = {
    "schema.compatibility": ("NONE",),
    "append.late.data": ("false",),
    "partitioner.max.open.files": ("-1",),
    "store.kafka.keys": ("false",),
    "store.kafka.headers": ("false",),
    "s3.schema.partition.affix.type": ("NONE",),
    "s3.path.style.access.enabled": ("true",),
    "s3.path.style.access": ("true",),
    "s3.wan.mode": ("false",),
    "s3.ssea.name": ("",),
    "s3.sse.key": ("",),
    "s3.sse.kms.key.id": ("",),
    "s3.acl.canned": ("",),
    "s3.object.tagging": ("false",),
    "s3.proxy.url": ("",),
    "s3.credentials.provider.class": ("com.amazonaws.auth.DefaultAWSCredentialsProviderChain",),
    "aws.access.key.id": ("",),
    "aws.secret.access.key": ("",),
    "json.decimal.format": ("BASE64",),
    "transforms": ("",),
    "predicates": ("",),
}
_CREDENTIALS = "credentials come from the usual AWS environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...)"
REASONS = {
    "schema.compatibility": "a changed schema begins a new file, values are never projected",
    "append.late.data": "a late record goes where its own time says",
    "s3.credentials.provider.class": _CREDENTIALS,
    "aws.access.key.id": _CREDENTIALS,
    "aws.secret.access.key": _CREDENTIALS,
    "transforms": "the Spark engine has no transforms yet",
    "predicates": "the Spark engine has no transforms yet",
}
KNOWN = Known(HONOURED | OF_RUN | HARMLESS, (*OF_RUN_PREFIXES, *HARMLESS_PREFIXES), ONLY, REASONS)
