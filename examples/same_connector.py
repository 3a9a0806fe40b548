"""The same connector as same_connector.json, .yaml and .properties: four files, one plan."""

TRANSFORMS = {
    "line": {"type": "org.apache.kafka.connect.transforms.HoistField$Value", "field": "line"},
    "drop": {"type": "org.apache.kafka.connect.transforms.DropHeaders", "headers": ["trace", "span"]},
}


def connectors() -> list[dict[str, object]]:
    config: dict[str, object] = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": 1,
        "file": "/tmp/same.txt",  # noqa: S108 - the same path as in the other three files
        "topic": "same",
        "topic.creation.default.partitions": 1,
        "topic.creation.default.replication.factor": -1,
        "batch.size": 100,
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": False,
        "transforms": list(TRANSFORMS),
    }
    for alias, fields in TRANSFORMS.items():
        config |= {f"transforms.{alias}.{field}": value for field, value in fields.items()}
    return [{"name": "same_src", "config": config}]
