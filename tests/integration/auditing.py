"""Audits in tests: a table, a topic and a folder of a lab, moved by runs on Spark, and `playhead audit` in the same session."""

import json
from collections.abc import Sequence
from pathlib import Path

from playhead.config import Context, Setting
from playhead.model import ConnectorSpec
from playhead.pipeline.audit.model import Audit, Item
from playhead.pipeline.audit.run import AuditOptions, run_audit


class Audits:
    """Of connectors whose files are written to `folder`, with the ledger of `on_spark`, or another one."""

    def __init__(self, on_spark, folder: Path, *specs: ConnectorSpec, ledger: Path | None = None) -> None:
        self.on_spark, self.specs = on_spark, specs
        self.file = folder / "audited.json"
        self.file.write_text(json.dumps([{"name": spec.name, "config": dict(spec.config)} for spec in specs]))
        settings = {
            "worker-config": str(on_spark.lab.worker_config),
            "ledger": f"sqlite:///{ledger or on_spark.ledger.address.path}",
            "journal": str(folder / "journal"),
        }
        self.context = Context(None, {key: Setting(value, "here") for key, value in settings.items()})

    def __call__(self, *names: str, **options: object) -> Audit:
        wanted = AuditOptions(str(self.file), **options)  # type: ignore[arg-type]
        return run_audit(self.context, names, wanted, spark=self.on_spark.spark)


def verdicts(audit: Audit) -> dict[str, list[str | None]]:
    """Verdict -> keys, of all pairs."""
    assert [pair.error for pair in audit.pairs if pair.error] == []
    found: dict[str, list[str | None]] = {}
    for pair in audit.pairs:
        for item in pair.items:
            found.setdefault(item.verdict.value, []).append(item.key)
    return {verdict: sorted(keys, key=str) for verdict, keys in found.items()}


def only(items: Sequence[Item], verdict: str) -> list[Item]:
    return [item for item in items if item.verdict.value == verdict]
