"""Whatever a worker says, no secret of it is shown: not one that we sent, and none that looks like one."""

from collections.abc import Callable, Iterator

import pytest

from contract.workers import Fake, Reply, Request, client, error, in_turn, serving
from playhead.connect.transport import MESSAGE_CHARACTERS, Credentials
from playhead.errors import PlayheadError, Rejected
from playhead.model import Secret

CANARY = "c4n4ry words"
WORD = "c4n4ry"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password=hun ter2word;'


@pytest.fixture
def serve() -> Iterator[Callable[..., Fake]]:
    with serving() as start:
        yield start


@pytest.mark.parametrize("message", [f"failed, password={WORD}", f'failed: {{"db.password": "{CANARY}"}}'])
@pytest.mark.parametrize(
    "words",
    [
        ["connectors", "list"],
        ["connectors", "show", "c"],
        ["connectors", "plugins"],
        ["connectors", "pause", "c", "--execute"],
        ["connectors", "restart", "c", "--execute"],
        ["connectors", "delete", "c", "--execute"],
        ["connectors", "export", "c"],
        ["connectors", "log-level"],
        ["offsets", "show", "c"],
        ["info"],
    ],
)
def test_no_command_shows_a_secret_in_the_error_of_a_worker(serve, playhead, words, message):
    fake = serve(in_turn(error(500, message)))
    ran = playhead(*words, "--connect", fake.url, "--timeout", "5s")
    assert ran.code != 0
    assert fake.requests
    assert WORD not in ran.out + ran.err
    assert "***" in ran.out + ran.err


def test_our_own_credentials_are_not_shown_when_a_server_repeats_them(serve):
    fake = serve(in_turn(error(500, f"who is {CANARY}? and tok-123?")))
    credentials = Credentials(username="app", password=Secret(CANARY), token=Secret("tok-123"))
    with client(fake, credentials=credentials) as rest, pytest.raises(Rejected) as caught:
        rest.list_connectors()
    assert caught.value.message == "who is ***? and ***?"


def test_secrets_of_the_config_that_was_sent_are_not_shown(serve):
    fake = serve(in_turn(error(400, f"{CANARY} is too short; Value not specified for key 'ter2word' in JAAS config")))
    config = {"connector.class": "X", "pin.password": CANARY, "sasl.jaas.config": JAAS}
    with client(fake) as rest:
        for call in (
            lambda: rest.create_connector("c", config),
            lambda: rest.put_config("c", config),
            lambda: rest.patch_config("c", config),
            lambda: rest.validate("X", config),
        ):
            with pytest.raises(Rejected) as caught:
                call()
            assert caught.value.message == "*** is too short; Value not specified for key '***' in JAAS config"


def test_the_errors_of_a_validation_and_the_message_of_an_edit_are_scrubbed(serve):
    key = {"name": "pin.password", "errors": [f"Invalid value {CANARY}", f"url=http://u:{WORD}@h", "too short"]}
    answers = {
        "PUT": {"name": "X", "error_count": 1, "groups": [], "configs": [{"definition": None, "value": key}]},
        "PATCH": {"message": f"done with token={WORD}"},
    }

    def answer(request: Request) -> Reply:
        return Reply(200, answers[request.method])

    with client(serve(answer)) as rest:
        found = rest.validate("X", {"connector.class": "X", "pin.password": CANARY})
        assert found.errors() == {"pin.password": ["Invalid value ***", "url=http://***@h", "too short"]}
        assert rest.alter_offsets("c", []) == "done with token=***"


def test_a_message_without_end_is_cut(serve):
    fake = serve(in_turn(error(500, "{ a=" * 500_000)))
    with client(fake) as rest, pytest.raises(PlayheadError) as caught:
        rest.list_connectors()
    assert len(caught.value.what) < MESSAGE_CHARACTERS + 100
