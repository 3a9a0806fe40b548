"""An S3 server: S3Proxy over a folder. Its jars are fetched only if S3 is requested.

It listens on loopback only, with the same keys in every lab. A multipart upload is visible once it is completed. Parts of an
unfinished upload stay in the folder after a kill, as on Amazon S3, and are in no listing of objects.
"""

import http.client
import re
from pathlib import Path

from playhead.errors import Invalid
from playhead.lab.java import server_command
from playhead.lab.options import LabFile
from playhead.lab.parts import Part, properties_text

IDENTITY = "playhead"
CREDENTIAL = "playhead-lab"
REGION = "us-east-1"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)


def s3_part(folder: Path, lab: LabFile) -> Part:
    port = lab.ports["s3"]
    home = folder / "s3"
    config = home / "s3proxy.properties"
    properties = {
        "s3proxy.endpoint": endpoint(lab),
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": IDENTITY,
        "s3proxy.credential": CREDENTIAL,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": home / "data",
    }

    def answers() -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            return str(error)
        finally:
            connection.close()
        return None

    return Part(
        "s3",
        address=endpoint(lab),
        command=lambda: server_command(
            folder, "s3", "s3", "org.gaul.s3proxy.Main", ["--properties", str(config)], heap="512m"
        ),
        log=folder / "logs" / "s3.log",
        answers=answers,
        files={config: properties_text(properties)},
        prepare=lambda: (home / "data").mkdir(parents=True, exist_ok=True),
    )


def make_bucket(folder: Path, name: str) -> None:
    if not _BUCKET.fullmatch(name):
        raise Invalid(f"{name!r} is not the name of a bucket")
    (folder / "s3" / "data" / name).mkdir(parents=True, exist_ok=True)


def endpoint(lab: LabFile) -> str:
    return f"http://127.0.0.1:{lab.ports['s3']}"
