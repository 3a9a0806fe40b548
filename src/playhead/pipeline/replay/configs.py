"""The config of the connector that is replayed."""

from playhead.config import Context
from playhead.config.secrets import SecretKeys
from playhead.connect.rest import open_rest
from playhead.connectors.files import read_files
from playhead.errors import NotFound, Refused, Unreachable
from playhead.ledger.model import Run
from playhead.model import ConnectorSpec, Deadline


def find_spec(
    context: Context, name: str, file: str | None, run: Run | None, deadline: Deadline
) -> tuple[ConnectorSpec, str]:
    """The connector's config, and where it was found: the file, else a worker, else the ledger's copy without secrets."""
    if file is not None:
        specs = {spec.name: spec for spec in read_files([file], shared_topics=True).specs}
        if name not in specs:
            raise NotFound("connector", name, sorted(specs), f"in {file}")
        return specs[name], file
    why = ""
    if context.connect_urls:
        try:
            with open_rest(context, deadline) as rest:
                found = rest.get_config(name)
            config = {key: value for key, value in found.items() if value is not None and key != "name"}
            return ConnectorSpec(name, config), "the Connect worker"
        except NotFound:
            why = "no Connect worker has it, and "
        except Unreachable as error:
            why = f"no Connect worker answers ({error.what}), and "
    keys = SecretKeys()
    recorded = run.config if run else {}
    masked = sorted(key for key, value in recorded.items() if keys.is_masked(key, value))
    if not recorded or masked:
        held = (
            f"the ledger's copy of its config has no {', '.join(masked)}"
            if masked
            else "the ledger has no config of it"
        )
        raise Refused(f"{why}{held}", f"name its file: playhead replay {name} -f FILE")
    return ConnectorSpec(name, recorded), "the ledger"
