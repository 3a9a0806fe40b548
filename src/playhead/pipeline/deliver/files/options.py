"""The options of the S3 sink connector, under their own names, with its defaults and meanings.

Every option is honoured, known to have no effect on Spark, or refused by name; all faults are reported together. An option
that is on none of the lists is refused as well: Connect would ignore a typo. What the connector ignores by its own rules (a
`path.format` of a partitioner that has none) is ignored here, too. `store.url` may also be `file:///folder`. Only the codecs
and formats below are known.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from posixpath import normpath
from urllib.parse import unquote, urlsplit

from playhead.errors import Fault, Invalid
from playhead.pipeline.deliver.chain import PREFIXES, check_chain, check_routes
from playhead.pipeline.deliver.files.joda import open_zone, parse_pattern
from playhead.pipeline.options import OF_EVERY, KnownOptions, OptionReading
from playhead.pipeline.records.decode.options import BYTES as BYTES_CONVERTER
from playhead.pipeline.records.decode.options import Converter, check_converters, parse_converter
from playhead.pipeline.records.transforms.options import OF_TRANSFORMS

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
# The run reads these: topics, converters, handling of bad records.
OF_RUN = frozenset(["topics", "topics.regex", "key.converter", "value.converter", *OF_TRANSFORMS])
OF_RUN_PREFIXES = (
    "key.converter.",
    "value.converter.",
    "consumer.override.",
    "producer.override.",
    "errors.",
    *PREFIXES,
)
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
# Options that are allowed only with the value that means "off" or the default.
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
}
_CREDENTIALS = "credentials come from the usual AWS environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...)"
REASONS = {
    "schema.compatibility": "a changed schema begins a new file, values are never projected",
    "append.late.data": "a late record is written to the folder of its own time",
    "s3.credentials.provider.class": _CREDENTIALS,
    "aws.access.key.id": _CREDENTIALS,
    "aws.secret.access.key": _CREDENTIALS,
}
KNOWN = KnownOptions(HONOURED | OF_RUN | HARMLESS, (*OF_RUN_PREFIXES, *HARMLESS_PREFIXES), ONLY, REASONS)


_FORMATS = "io.confluent.connect.s3.format."
JSON, PARQUET, BYTES = "json", "parquet", "bytes"
FORMAT_CLASSES = {
    f"{_FORMATS}json.JsonFormat": JSON,
    f"{_FORMATS}parquet.ParquetFormat": PARQUET,
    f"{_FORMATS}bytearray.ByteArrayFormat": BYTES,
}
_PARTITIONERS = "io.confluent.connect.storage.partitioner."
DEFAULT, FIELD, TIME, HOURLY, DAILY = (
    f"{kind}Partitioner" for kind in ("Default", "Field", "TimeBased", "Hourly", "Daily")
)
PARTITIONER_CLASSES = {f"{_PARTITIONERS}{name}": name for name in (DEFAULT, FIELD, TIME, HOURLY, DAILY)}
WALLCLOCK, RECORD, RECORD_FIELD = "Wallclock", "Record", "RecordField"
EXTRACTORS = (WALLCLOCK, RECORD, RECORD_FIELD)
STORAGE_CLASS = "io.confluent.connect.s3.storage.S3Storage"
CODECS = {"none": "", "snappy": ".snappy", "gzip": ".gz", "zstd": ".zstd"}
HOUR_MS = 3_600_000
FAIL, IGNORE = "fail", "ignore"


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """`compression` is of JSON and bytes, `codec` of Parquet. `extension`: of file names, including the compression."""

    kind: str = JSON
    extension: str = ".json"
    compression: str = "none"
    level: int = -1
    codec: str = "snappy"
    separator: str = "\n"


@dataclass(frozen=True, slots=True)
class PartitionerOptions:
    """`duration_ms` and `path_format` are set for every time-based partitioner."""

    kind: str = DEFAULT
    fields: tuple[str, ...] = ()
    duration_ms: int = 0
    path_format: str = ""
    zone: str = ""
    locale: str = ""
    extractor: str = WALLCLOCK
    time_field: str = "timestamp"

    @property
    def is_timed(self) -> bool:
        return self.kind in (TIME, HOURLY, DAILY)

    @property
    def is_by_clock(self) -> bool:
        return self.is_timed and self.extractor == WALLCLOCK


@dataclass(frozen=True, slots=True)
class CutOptions:
    """`rotate_ms` 0: no rotation by the partitioner's time. `schedule_ms` 0: no rotation by the clock of `schedule_zone`."""

    flush_size: int
    rotate_ms: int = 0
    rotates_on_change: bool = True
    schedule_ms: int = 0
    schedule_zone: str = ""


@dataclass(frozen=True, slots=True)
class NameOptions:
    topics_dir: str = "topics"
    folder_delim: str = "/"
    file_delim: str = "+"
    pad: int = 10


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """A folder, or a bucket: `endpoint` is empty for Amazon S3."""

    folder: str = ""
    bucket: str = ""
    region: str = "us-west-2"
    endpoint: str = ""
    scheme: str = "https"
    retries: int = 3


@dataclass(frozen=True, slots=True)
class FileSinkOptions:
    format: FormatOptions
    partitioner: PartitionerOptions
    cut: CutOptions
    names: NameOptions
    store: StoreOptions
    nulls: str = FAIL

    def shape(self, converter: Converter, chain: str = "") -> str:
        """A digest of all options that shape paths and bytes: two runs with the same shape write the same files. `chain`: the
        digest of the transforms, if there are any."""
        shaped = {
            "version": 2,
            "converter": asdict(converter),
            "format": asdict(self.format),
            "partitioner": asdict(self.partitioner),
            "cut": asdict(self.cut) | {"schedule_ms": 0, "schedule_zone": ""},  # they only affect the claims
            "names": asdict(self.names),
            "place": [self.store.folder, self.store.endpoint, self.store.bucket],
            "nulls": self.nulls,
        }
        if chain:
            shaped["chain"] = chain
        return hashlib.sha256(json.dumps(shaped, sort_keys=True).encode()).hexdigest()

    @property
    def is_by_clock(self) -> bool:
        """Whether the output depends on the clock: then a new delivery gives other files, and only a repeated claim the same."""
        return self.partitioner.is_by_clock or self.cut.schedule_ms > 0


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:
    """Everything that is wrong with a connector's config, as far as the config alone shows."""
    return _Reading(config, worker).read()[1]


def parse_options(config: Mapping[str, str], worker: Mapping[str, str]) -> FileSinkOptions:
    return _Reading(config, worker).parsed()


class _Reading(OptionReading[FileSinkOptions]):
    def read(self) -> tuple[FileSinkOptions | None, list[Fault]]:
        self.check_names(KNOWN)
        self.one_of("storage.class", STORAGE_CLASS, (STORAGE_CLASS,), any_case=False)
        names = self._names()
        options = FileSinkOptions(
            format=self._format(),
            partitioner=self._partitioner(names.folder_delim),
            cut=self._cut(),
            names=names,
            store=self._store(),
            nulls=self.one_of("behavior.on.null.values", FAIL, (FAIL, IGNORE)),
        )
        self._agree(options)
        self._converters(options)
        return (None if self.faults else options), self.faults

    def _converters(self, options: FileSinkOptions) -> None:
        if found := check_converters(self.config, self.worker):
            self.faults += found
        elif options.format.kind == BYTES and parse_converter(self.config, self.worker).name != BYTES_CONVERTER:
            self.fault("format.class", f"ByteArrayFormat needs value.converter={BYTES_CONVERTER}")
        self.faults += check_chain(self.config, self.worker)
        self.faults += check_routes(self.config)

    def _class(self, name: str, default: str, classes: Mapping[str, str]) -> str:
        value = self.text(name, default)
        if value not in classes:
            what = f"the Spark engine does not know {value}" if value else "is missing"
            self.fault(name, f"{what}; it knows {', '.join(classes)}")
        return classes.get(value, "")

    def _format(self) -> FormatOptions:
        kind = self._class("format.class", "", FORMAT_CLASSES)
        compression = self.one_of("s3.compression.type", "none", ("none", "gzip"))
        level = self.number("s3.compression.level", -1, -1, 9)
        codec = self.one_of("parquet.codec", "snappy", tuple(CODECS))
        packed = ".gz" if compression == "gzip" else ""
        if kind == PARQUET:
            return FormatOptions(kind, f"{CODECS.get(codec, '')}.parquet", codec=codec)
        if kind == BYTES:
            separator = self.config.get("format.bytearray.separator", "\n")  # white space counts
            extension = self.text("format.bytearray.extension", ".bin")
            if "/" in extension:
                self.fault("format.bytearray.extension", "must not hold a /")
            return FormatOptions(kind, extension + packed, compression, level, separator=separator)
        return FormatOptions(kind or JSON, f".json{packed}", compression, level)

    def _partitioner(self, delim: str) -> PartitionerOptions:
        kind = self._class("partitioner.class", f"{_PARTITIONERS}{DEFAULT}", PARTITIONER_CLASSES)
        extractor = self.one_of("timestamp.extractor", WALLCLOCK, EXTRACTORS, any_case=False)
        if kind == FIELD:
            fields = tuple(part.strip() for part in self.text("partition.field.name").split(",") if part.strip())
            if not fields:
                self.fault("partition.field.name", "is needed by FieldPartitioner")
            return PartitionerOptions(kind, fields)
        if kind not in (TIME, HOURLY, DAILY):
            return PartitionerOptions(DEFAULT)
        duration, path_format = self._periods(kind, delim)
        zone, locale = self.text("timezone"), self.text("locale")
        if not zone:
            self.fault("timezone", f"is needed by {kind}")
        if not locale:
            self.fault("locale", f"is needed by {kind}")
        self._tried("path.format", lambda: parse_pattern(path_format, locale))
        time_field = self.text("timestamp.field", "timestamp")
        return PartitionerOptions(kind, (), duration, path_format, zone, locale, extractor, time_field)

    def _periods(self, kind: str, delim: str) -> tuple[int, str]:
        parts = ["'year'=YYYY", "'month'=MM", "'day'=dd"]
        if kind == HOURLY:
            return HOUR_MS, delim.join([*parts, "'hour'=HH"])
        if kind == DAILY:
            return 24 * HOUR_MS, delim.join(parts)
        path_format = self.text("path.format").removesuffix(delim)
        if not path_format:
            self.fault("path.format", "is needed by TimeBasedPartitioner")
        duration = self.number("partition.duration.ms", 0, 1)
        if not self.text("partition.duration.ms"):
            self.fault("partition.duration.ms", "is needed by TimeBasedPartitioner")
        return duration, path_format

    def _tried(self, name: str, read: Callable[[], object]) -> None:
        try:
            read()
        except Invalid as error:
            self.fault(name, f"{error.what}; {error.hint}" if error.hint else error.what)

    def _cut(self) -> CutOptions:
        if not self.text("flush.size"):
            self.fault("flush.size", "is missing")
        schedule = self.number("rotate.schedule.interval.ms", -1, -1)
        if zone := self.text("timezone"):
            self._tried("timezone", lambda: open_zone(zone))
        elif schedule > 0:
            self.fault("timezone", "is needed by rotate.schedule.interval.ms")
        change = self.one_of("rotate.file.on.partition.change", "true", ("true", "false"))
        return CutOptions(
            flush_size=self.number("flush.size", 1, 1, 2**31 - 1),
            rotate_ms=max(0, self.number("rotate.interval.ms", -1, -1)),
            rotates_on_change=change == "true",
            schedule_ms=max(0, schedule),
            schedule_zone=zone if schedule > 0 else "",
        )

    def _names(self) -> NameOptions:
        topics_dir = self.config.get("topics.dir", "topics").strip().strip("/")
        if any(part in ("", ".", "..") for part in topics_dir.split("/")) and topics_dir:
            self.fault("topics.dir", f"{topics_dir!r} is not a folder below the store")
        file_delim = self.text("file.delim", "+")
        if "/" in file_delim:
            self.fault("file.delim", "must not hold a /")
        return NameOptions(
            topics_dir,
            self.text("directory.delim", "/"),
            file_delim,
            self.number("filename.offset.zero.pad.width", 10, 0, 100),
        )

    def _store(self) -> StoreOptions:
        url, bucket = self.text("store.url"), self.text("s3.bucket.name")
        self.number(
            "s3.part.size", 26_214_400, 5 * 1024 * 1024, 2**31 - 1
        )  # checked but unused: the client decides its part size
        retries = self.number("s3.part.retries", 3, 0, 1000)
        parts = urlsplit(url)
        if parts.scheme == "file":
            if bucket:
                self.fault("s3.bucket.name", "has no meaning where store.url is a folder")
            if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
                self.fault("store.url", f"{url!r} is not a folder of this machine, like file:///data/lake")
            return StoreOptions(folder=normpath(unquote(parts.path)))
        if not bucket:
            self.fault("s3.bucket.name", "is missing")
        if url and (parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/")):
            self.fault("store.url", f"{url!r} is neither file:///folder nor the http(s) address of an S3 server")
        region = self.text("s3.region", "us-west-2")
        return StoreOptions("", bucket, region, parts.netloc, parts.scheme or "https", retries)

    def _agree(self, options: FileSinkOptions) -> None:
        reads_field = options.partitioner.kind == FIELD or (
            options.partitioner.is_timed and options.partitioner.extractor == RECORD_FIELD
        )
        if options.format.kind == BYTES and reads_field:
            self.fault("partitioner.class", "cannot read fields: with ByteArrayFormat a value is only bytes")
