"""The config of the connector that is replayed: the one with which its part was delivered, as far as that is known.

A run records its config in the ledger, without secrets. As long as the connector belongs to Spark, that copy counts: Connect
keeps the config from before a hand-over, which may have changed since. Secrets that the copy does not have are taken from the
worker.
"""

from playhead.config import Context
from playhead.config.secrets import SecretKeys
from playhead.connect.rest import open_rest
from playhead.connectors.files import read_files
from playhead.errors import NotFound, Refused, Unreachable
from playhead.ledger.model import Run
from playhead.model import ConnectorSpec, Deadline

WORKER, LEDGER = "the Connect worker", "the ledger"


def find_spec(
    context: Context, name: str, file: str | None, run: Run | None, deadline: Deadline
) -> tuple[ConnectorSpec, str]:
    """The connector's config, and where it was found."""
    if file is not None:
        specs = {spec.name: spec for spec in read_files([file], shared_topics=True).specs}
        if name not in specs:
            raise NotFound("connector", name, sorted(specs), f"in {file}")
        return specs[name], file
    recorded, keys = run.config if run else {}, SecretKeys()
    masked = sorted(key for key, value in recorded.items() if keys.is_masked(key, value))
    is_on_spark = run is not None and not run.is_with_connect and bool(recorded)
    if is_on_spark and not masked:
        return ConnectorSpec(name, recorded), LEDGER
    in_connect, why = _in_connect(context, name, deadline)
    if in_connect is not None and not is_on_spark:
        return ConnectorSpec(name, in_connect), WORKER
    same = {key: value for key, value in (in_connect or {}).items() if keys.masked(key, value) == recorded.get(key)}
    missing = [key for key in masked if key not in same]
    if recorded and not missing:
        secrets = {key: same[key] for key in masked}
        found_in = f"{LEDGER}; {', '.join(masked)}: {WORKER}" if masked else LEDGER
        return ConnectorSpec(name, {**recorded, **secrets}), found_in
    held = (
        f"the ledger's copy of its config has no {', '.join(missing)}" if missing else "the ledger has no config of it"
    )
    raise Refused(f"{why}{held}", f"name its file: playhead replay {name} -f FILE")


def _in_connect(context: Context, name: str, deadline: Deadline) -> tuple[dict[str, str] | None, str]:
    """Its config there, or None with the reason, as the beginning of a sentence."""
    if not context.connect_urls:
        return None, ""
    try:
        with open_rest(context, deadline) as rest:
            found = rest.get_config(name)
    except NotFound:
        return None, "no Connect worker has it, and "
    except Unreachable as error:
        return None, f"no Connect worker answers ({error.what}), and "
    return {key: value for key, value in found.items() if value is not None and key != "name"}, ""
