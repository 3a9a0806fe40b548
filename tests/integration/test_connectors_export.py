"""Running connectors as files, new ones and ones that people keep: the plan of the file is empty afterwards."""

import json
import re
import subprocess
from dataclasses import replace

from contract.workers import Reply, ask, path_of, serving
from integration.connector_cluster import CANARY, SINK, SOURCE, cluster, secret_spec  # noqa: F401
from playhead.connectors.export import export_connectors
from playhead.connectors.files import read_specs
from playhead.connectors.plan.make import plan_connectors
from playhead.connectors.plan.model import Action
from playhead.model import Deadline
from playhead.model.connector import WantedState


def test_what_is_exported_applies_back_with_an_empty_plan(cluster, playhead):
    first, second = cluster.source(cluster.name("exp")), cluster.source(cluster.name("exp"), batch_size="3")
    cluster.apply(first, replace(second, state=WantedState.PAUSED))
    names = (first.name, second.name)
    for form in ("yaml", "json"):
        path = cluster.folder / f"export.{form}"
        playhead("connectors", "export", *names, "-o", form, "--file", str(path), "--connect", cluster.url).exits(0)
        assert cluster.actions(*read_specs([path])) == [Action.SAME, Action.SAME]
    found = export_connectors(cluster.context, [f"{second.name[:-1]}*"], Deadline(20))
    assert [(spec.name, spec.state) for spec in found.specs] == [(second.name, WantedState.PAUSED)]


COMMENTED = """\
# Orders and codes.   Owner: the data team
#
common:            # for all
  tasks.max: 1     # one is enough
  batch.size: 10   # for sources

connectors:

  # the big one
  {orders}:
    state: running                     # wanted since May
    config:
      connector.class: 'FileStreamSource'    # Kafka's own
      file: "{folder}/{orders}.txt"
      topic: {orders}-t                # with a "-t"
      batch.size: 20                   # overrides the common one

      # nothing below this line is needed
      old.key: x


  {codes}: {{config: {{connector.class: FileStreamSource, file: {folder}/{codes}.txt, topic: {codes}-t, extra: [a, b]}}}}  # short
  log_{{part}}:
    for: {{part: [{one}, {two}]}}        # a template
    config: {{connector.class: FileStreamSource, file: "{folder}/{{part}}", topic: "log_{{part}}-t"}}
# the end
"""


class Kept:
    """A file full of comments, applied; and what happened on the cluster behind its back."""

    def __init__(self, cluster, playhead) -> None:
        self.cluster, self.playhead = cluster, playhead
        self.orders, self.codes = cluster.name("orders"), cluster.name("codes")
        self.parts = [cluster.unique("p"), cluster.unique("p")]
        cluster.names |= {f"log_{part}" for part in self.parts}
        for name in (f"{self.orders}.txt", f"{self.codes}.txt", *self.parts):
            (cluster.folder / name).touch()
        for name in (self.orders, self.codes, *(f"log_{part}" for part in self.parts)):
            cluster.topic(f"{name}-t")
        self.path = cluster.folder / "kept.yaml"
        text = COMMENTED.format(
            orders=self.orders, codes=self.codes, folder=cluster.folder, one=self.parts[0], two=self.parts[1]
        )
        self.path.write_text(text)
        self.path.chmod(0o640)
        cluster.apply(*read_specs([self.path]))

    def puts(self, name: str, **changes: str | None) -> None:
        """As another client would, with curl."""
        config = self.cluster.config(name) | {key.replace("_", "."): value for key, value in changes.items()}
        body = {key: value for key, value in config.items() if value is not None}
        assert ask(f"{self.cluster.url}{path_of(name)}/config", "PUT", body)[0] == 200

    def into(self, *words: str):
        return self.playhead("connectors", "export", *words, "--into", str(self.path), "--connect", self.cluster.url)

    def plan(self):
        return self.playhead("connectors", "plan", "-f", str(self.path), "--connect", self.cluster.url)


def test_what_changed_on_the_cluster_comes_into_the_file_and_comments_survive(cluster, playhead):
    kept = Kept(cluster, playhead)
    new = cluster.source(cluster.name("new"), tasks_max="1")
    cluster.apply(new)
    kept.puts(kept.orders, batch_size="33", old_key=None, new_key="it's: new")
    kept.puts(kept.codes, batch_size=None, extra="a,b,c")
    ask(f"{cluster.url}{path_of(kept.orders)}/pause", "PUT")
    Deadline(20).wait_for(lambda: cluster.state(kept.orders) == ("PAUSED", 1), "the pause")
    before = kept.path.read_text()
    names = (kept.orders, kept.codes, new.name, f"log_{kept.parts[0]}")
    dry = kept.into(*names).exits(0)
    assert kept.path.read_text() == before
    assert "dry run: nothing was changed; add --execute" in dry.err
    done = kept.into(*names, "--execute").exits(0)
    assert done.out == dry.out
    assert "2 connector(s) changed, 1 added" in done.err
    after = kept.path.read_text()
    assert after == (
        before.replace("running                     #", "paused                     #")
        .replace("batch.size: 20  ", "batch.size: 33  ")
        .replace("      old.key: x\n", '      new.key: "it\'s: new"\n')
        .replace("extra: [a, b]}", "extra: [a, b, c], batch.size: null}")
        .replace(
            "# the end\n",
            f"  {new.name}:\n    state: running\n    config:\n      connector.class: FileStreamSource\n"
            f"      batch.size: null\n      file: {new.config['file']}\n      topic: {new.name}-t\n# the end\n",
        )
    )
    assert re.findall(r"#.*", after) == re.findall(r"#.*", before)
    assert kept.path.stat().st_mode & 0o777 == 0o640
    kept.plan().exits(0)
    assert "nothing to change" in kept.into(*names, "--execute").exits(0).err
    # What was shown is a diff that the tool of everybody applies.
    kept.path.write_text(before)
    subprocess.run(["patch", str(kept.path)], input=dry.out, text=True, check=True, capture_output=True)
    assert kept.path.read_text() == after


def test_what_a_template_makes_is_refused_by_name_and_line(cluster, playhead):
    kept = Kept(cluster, playhead)
    made = f"log_{kept.parts[1]}"
    kept.puts(made, batch_size="5")
    kept.puts(kept.orders, batch_size="5")
    before = kept.path.read_bytes()
    line = before.decode().split("\n").index("  log_{part}:") + 1
    ran = kept.into(kept.orders, made, "--execute").exits(4)
    assert f"{kept.path}:{line}: '{made}' is created by a template, and differs in batch.size" in ran.err
    assert kept.path.read_bytes() == before
    kept.into(kept.orders, f"log_{kept.parts[0]}", "--execute").exits(0)
    assert b"batch.size: 5 " in kept.path.read_bytes()


def test_a_secret_of_the_cluster_never_comes_into_the_file_nor_one_of_the_file_into_the_diff(cluster, playhead):
    spec = secret_spec(cluster, cluster.name("secret"))
    cluster.apply(replace(spec, state=WantedState.STOPPED))
    path = cluster.folder / "secret.yaml"
    own = f"{CANARY}-of-the-file"
    path.write_text(
        f"connectors:\n  {spec.name}:\n    config:\n      connector.class: {SINK}\n      topics: u\n"
        f"      db.password: ${{env:DB}}   # a reference\n      jdbc.url: jdbc:postgresql://db/x?password={own}\n"
        f"      other.password: >-\n        {own}\n        folded\n"
    )
    where = ("--into", str(path), "--connect", cluster.url)
    ran = playhead("connectors", "export", spec.name, *where, "--execute").exits(0)
    text = path.read_text()
    assert CANARY not in ran.out + ran.err
    assert text.count(CANARY) == text.count(own) == 1  # the literal that the file had; the other went with its key
    assert "      db.password: ${env:DB}   # a reference\n" in text
    assert f"{spec.name}: db.password is not changed in the file" in ran.err
    assert f"{spec.name}: jdbc.url is not changed in the file" in ran.err
    assert "file is a literal secret, written as http://app:${env:SECRET_" in ran.err
    [row] = plan_connectors(cluster.context, read_specs([path]), Deadline(20)).rows
    hidden = {"db.password", "jdbc.url", "file", "consumer.override.sasl.jaas.config"}
    assert {change.key for change in row.changes} == hidden


def test_a_mask_of_the_server_is_not_taken_for_a_value(cluster, playhead):
    spec = cluster.source(cluster.name("mask"), db_password="real", batch_size="4")
    cluster.apply(spec)

    def masking(request):
        code, answer = ask(cluster.url + request.path, request.method)
        text = json.dumps(answer).replace('"db.password": "real"', '"db.password": "******"')
        return Reply(code, json.loads(text), {"Content-Type": "application/json"})

    path = cluster.folder / "mask.yaml"
    path.write_text(
        f"connectors:\n  {spec.name}:\n    config:\n      connector.class: {SOURCE}\n      db.password: ${{env:PW}} # ours\n"
        f"      file: {spec.config['file']}\n      topic: {spec.name}-t\n"
    )
    with serving() as start:
        where = ("--into", str(path), "--connect", start(masking).url)
        ran = playhead("connectors", "export", spec.name, *where, "--execute").exits(0)
    assert "db.password is not changed in the file" in ran.err
    assert "db.password: ${env:PW} # ours\n" in path.read_text()
    assert '      batch.size: "4"\n' in path.read_text()


def test_a_file_that_cannot_be_edited_is_said(cluster, playhead):
    where = ("--connect", cluster.url)
    path = cluster.folder / "x.json"
    path.write_text("[]")
    assert "is not YAML" in playhead("connectors", "export", "--into", str(path), *where).exits(2).err
    gone = cluster.folder / "gone.yaml"
    assert "does not exist" in playhead("connectors", "export", "--into", str(gone), *where).exits(2).err
    gone.write_text("connectors: {a: {config: {}}}")
    assert "gone.yaml:1: connector 'a'" in playhead("connectors", "export", "--into", str(gone), *where).exits(2).err
    for words in (["--into", str(gone), "-o", "json"], ["--into", str(gone), "--file", "x"], ["--execute"]):
        playhead("connectors", "export", *words, *where).exits(2)
