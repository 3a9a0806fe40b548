"""The process that carries out a replay for the server: `python -m playhead.web.replay_process`.

Standard input has the order, one line of JSON, and is open for as long as the server wants the replay: its end is a Ctrl-C.
Standard output has a line of JSON for each outcome. What anything else prints there, as a JVM may, does not go to it.
"""

import os
import signal
import sys
import threading
from dataclasses import replace
from typing import BinaryIO

import msgspec

from playhead.config import Context, Setting
from playhead.errors import PlayheadError, Refused
from playhead.model.host import acting_as
from playhead.web.replays import ReplayNews, ReplayOrder, Span


def main() -> None:
    news = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ReplayOrder)
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    try:
        with acting_as(order.who):
            last = ReplayNews(code=replayed(order, news))
    except PlayheadError as error:
        last = ReplayNews(error=error.what, hint=error.hint, code=error.exit_code)
    except Exception as error:  # noqa: BLE001  (the page shows it; there is no other place)
        last = ReplayNews(error=f"internal error: {type(error).__name__}", code=1)
    _send(news, last)


def replayed(order: ReplayOrder, news: BinaryIO) -> int:
    """Exactly the ranges that were shown; refused if the ledger has others by now."""
    from playhead.pipeline.replay.asked import Asked, AskedRange
    from playhead.pipeline.replay.run import ReplayOptions, execute_replay, exit_code_of, outcome_row, planned_replay

    context = Context(order.context, {key: Setting(*one) for key, one in order.settings.items()})
    asked = Asked(tuple(AskedRange(one.topic, one.partition, one.start, one.end) for one in order.spans))
    options = replace(ReplayOptions.of_context(context, order.file), accepts=order.accept_changes)
    with planned_replay(context, order.owner, asked, options) as planned:
        if [msgspec.convert(row, Span) for row in planned.rows] != order.spans or planned.impossible:
            raise Refused(f"the delivered ranges of {order.owner} changed since the plan was created", "plan again")
        rows = []
        for outcome in execute_replay(context, planned):
            rows.append(outcome_row(outcome))
            _send(news, ReplayNews(row=rows[-1]))
    return exit_code_of(rows, is_part=False)


def _send(news: BinaryIO, one: ReplayNews) -> None:
    news.write(msgspec.json.encode(one) + b"\n")
    news.flush()


def _end_with(stdin: BinaryIO) -> None:
    while stdin.read(1):
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


if __name__ == "__main__":
    main()
