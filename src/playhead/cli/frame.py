"""Shared by every command: lazy groups, common options, output, errors and exit codes.

stdout is for data, stderr for messages. A command gets a `Face` and calls `face.context`, `face.deadline` and
`face.show(answer)`.
"""

import gc
import os
import shlex
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from playhead.config import Context, open_context
from playhead.config.contexts import Level
from playhead.errors import Invalid, PartFailed, PlayheadError
from playhead.model import Deadline
from playhead.render import Details, Listing, clean, render_pieces
from playhead.render.listing import FORMATS
from playhead.render.width import COMMAND, wrap_message

if TYPE_CHECKING:
    from playhead.config.scrub import Scrub
    from playhead.stores import Access

F = TypeVar("F", bound=Callable[..., Any])
# Words that people try, and the reading verbs that they mean, the best first. None of these verbs changes anything.
ALIASES = {
    "describe": ("show", "view", "status"),
    "show": ("view", "status"),
    "get": ("show", "view", "status"),
    "cat": ("records", "show", "view", "logs"),
    "ls": ("list", "contexts", "status"),
    "list": ("contexts", "status"),
    "status": ("show", "view"),
    "diff": ("plan",),
}
OF_ALL = ("get", "status")  # without a name they mean `list`
READS = frozenset(
    [
        "contexts",
        "diff",
        "doctor",
        "env",
        "history",
        "info",
        "journal",
        "list",
        "logs",
        "plan",
        "plugins",
        "records",
        "show",
        "status",
        "validate",
        "view",
    ]
)
GLOBAL = "Global options: see playhead --help"
READER_GONE = 141  # as a shell reports the end by SIGPIPE


class GlobalOption(click.Option):
    """Accepted before and after the subcommand, and described once: in the help of the program."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return super().get_help_record(ctx) if ctx.parent is None else None


class LazyGroup(click.Group):
    """Commands that are imported on first use: name -> (module:attribute, one line of help).

    `instead`: words that people try for something that another command does -> that command. They are answered, never executed.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        instead: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})
        self.instead = dict(instead or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = self._real(name)
        if name in self.lazy:
            module, _, attribute = self.lazy[name][0].partition(":")
            command: click.Command | None = getattr(import_module(module), attribute)
        else:
            command = super().get_command(ctx, name)
        if command is not None and any(isinstance(param, GlobalOption) for param in command.params):
            command.epilog = command.epilog or GLOBAL
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if name in OF_ALL and not self._has(name) and self._has("list") and not self._names_one(ctx, rest):
            return super().resolve_command(ctx, ["list", *rest])
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"no such command {name!r}; {self._hint(ctx, name, rest)}")
        return super().resolve_command(ctx, [self._real(name), *rest])

    def _has(self, name: str) -> bool:
        return name in self.lazy or name in self.commands

    def _real(self, name: str) -> str:
        if self._has(name):
            return name
        return next((one for one in ALIASES.get(name, ()) if self._has(one)), name)

    def _names_one(self, ctx: click.Context, rest: list[str]) -> bool:
        """Whether the words after `get` name something to show."""
        show = self.get_command(ctx, "show")
        if show is None:
            return False
        try:
            found, _, _ = show.make_parser(ctx).parse_args(list(rest))
        except click.UsageError:
            return True
        arguments = [param.name for param in show.params if isinstance(param, click.Argument)]
        return any(isinstance(found.get(name), str | tuple) for name in arguments)

    def _hint(self, ctx: click.Context, name: str, rest: list[str]) -> str:
        """A suggestion never names a verb that changes something: it might be run as it is."""
        from difflib import get_close_matches

        if name in self.instead:
            return self.instead[name]
        if name in (*ALIASES, *READS) and rest and self._has(rest[0]):
            return f"the noun comes first: {ctx.command_path} {rest[0]} {name}"
        safe = [one for one in self.list_commands(ctx) if one in READS or one in self.nouns(ctx)]
        near = get_close_matches(name, safe, n=3)
        return f"did you mean {' or '.join(near)}?" if near else f"see {ctx.command_path} --help"

    def nouns(self, ctx: click.Context) -> list[str]:
        return [one for one in self.list_commands(ctx) if isinstance(self.get_command(ctx, one), click.Group)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short_help(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        if name in self.lazy:
            return self.lazy[name][1]
        command = self.get_command(ctx, name)
        return command.get_short_help_str(90) if command else ""


class Face:
    """One invocation: its flags, its context, its deadline, its output."""

    def __init__(self) -> None:
        self.context_name: str | None = None
        self.more_contexts: list[str] = []
        self.flags: dict[str, str] = {}
        self.form = "table"
        self.debug = bool(os.environ.get("PLAYHEAD_DEBUG"))
        self.root: click.Command | None = None
        self._context: Context | None = None
        self._deadline: Deadline | None = None
        self._access: Access | None = None
        self._others: list[Face] = []

    def elsewhere(self, name: str) -> "Face":
        """The same invocation in another context, for a command that works with two. Flags that name servers are of the first."""
        other = Face()
        other.context_name, other.form, other.debug, other.root = name, self.form, self.debug, self.root
        other._deadline = self.deadline
        self._others.append(other)
        return other

    @property
    def context(self) -> Context:
        if self._context is None:
            self._context = open_context(self.context_name, self.flags)
            for note in self._context.notes:
                say(f"note: {note}")
        return self._context

    @property
    def deadline(self) -> Deadline:
        """One deadline for the whole command. It starts on first access."""
        if self._deadline is None:
            self._deadline = Deadline(self.context.timeout_seconds)
        return self._deadline

    @property
    def access(self) -> "Access":
        """Opens stores and workers, with one HTTP client for the whole command."""
        from playhead.stores import Access

        if self._access is None:
            self._access = Access(self.context, self.deadline)
        return self._access

    @property
    def scrub(self) -> "Scrub":
        """Masks the secrets of the contexts. Drivers scrub what servers send; only here all of these secrets are known."""
        from playhead.config.scrub import Scrub, secrets_of

        contexts = [face._context for face in (self, *self._others) if face._context]
        return Scrub({secret for context in contexts for secret in secrets_of(context)})

    @property
    def typed(self) -> list[tuple[str, str]]:
        """The options that select the servers of this command, as they were typed. A secret is never repeated."""
        pairs = [("--context", self.context_name)] if self.context_name else []
        for key, setting in (self._context.settings if self._context else {}).items():
            if setting.level is Level.FLAG and key != "timeout" and setting.shown == setting.text:
                value = f"{key.removeprefix('kafka.')}={setting.text}" if setting.origin == "-X" else setting.text
                pairs.append((setting.origin, value))
        return pairs

    def completed(self, text: str) -> str:
        """A hint whose commands can be pasted: they get the typed options that they take. A mere mention of a verb does not."""
        return COMMAND.sub(lambda match: self._completed(match.group(0)), text)

    def _completed(self, command: str) -> str:
        quoted = command.startswith("`")
        program_name, *words = command.strip("`").split()
        if (
            program_name != "playhead"
            or len(words) < 2
            or (len(words) == 2 and words[1] not in READS)
            or words[-1].startswith("..")
            or "--context" in words
        ):
            return command
        takes = self._options_of(words)
        more = [word for flag, value in self.typed if flag in takes for word in (flag, value)]
        whole = " ".join([command.strip("`").rstrip(), *([shlex.join(more)] if more else [])])
        return f"`{whole}`" if quoted else whole + command[len(command.rstrip()) :]

    def _options_of(self, words: list[str]) -> set[str]:
        """What this command takes and does not have yet, under any name."""
        found: click.Command | None = self.root
        for word in words[:2]:
            found = found.get_command(click.Context(found), word) if isinstance(found, click.Group) else None
        params = found.params if found else []
        return {name for param in params if not set(param.opts) & set(words) for name in param.opts}

    def close(self) -> None:
        for face in self._others:
            face.close()
        if self._access is not None:
            self._access.close()

    def show(self, answer: Listing | Details) -> None:
        if isinstance(answer, Listing) and not answer.rows and self.form in ("table", "wide"):
            say(answer.empty)
        for text in render_pieces(answer, self.form, width_of(sys.stdout)):
            write(clean(text, keep="\n") if self.form == "csv" and sys.stdout.isatty() else text)


def write(text: str) -> None:
    """Writes data to stdout."""
    if sys.stdout is None:
        raise PlayheadError("cannot write: stdout is closed")
    sys.stdout.write(text)
    sys.stdout.flush()


def say(message: str, *, style: str | None = None) -> None:
    """Writes a message to stderr, coloured on a terminal unless NO_COLOR is set."""
    text = clean(message, keep="\n")
    if (width := width_of(sys.stderr)) is not None:
        text = wrap_message(text, width)
    if style and wants_color(sys.stderr):
        text = click.style(text, fg=style)
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def width_of(stream: Any) -> int | None:
    """The columns of a terminal, COLUMNS before its own answer; None if `stream` is none: then nothing is cut or wrapped."""
    if stream is None or not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):  # a terminal that does not know, or a stream that only looks like one
        return 80


def program() -> str:
    """The command that calls this program again: its name if it is on PATH, else the path used for this call."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if called.name == "__main__.py":
        return f"{Path(sys.executable).name} -m playhead"
    if found and Path(found).resolve() == called.resolve():
        return called.name
    here = Path.cwd()
    return str(called.relative_to(here)) if called.is_relative_to(here) else str(called)


def wants_color(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _face(ctx: click.Context) -> Face:
    return ctx.ensure_object(Face)


def _flag(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def remember(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            if not value.strip():
                raise click.BadParameter("it is empty")
            _face(ctx).flags[key] = value

    return remember


def _remember_context(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        _face(ctx).context_name = value


def _remember_contexts(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> None:
    if values:
        _face(ctx).context_name, *_face(ctx).more_contexts = values


def _remember_overrides(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> None:
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not key=value")
        _face(ctx).flags[f"kafka.{key}"] = text


def _remember_form(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        _face(ctx).form = value


def _remember_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        _face(ctx).debug = True


def _complete_contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from playhead.cli.complete import context_names

    return context_names(incomplete)


def _option(*names: str, callback: Callable[..., None], **more: Any) -> Callable[[F], F]:
    return click.option(*names, cls=GlobalOption, callback=callback, expose_value=False, **more)


FILE = click.Path(dir_okay=False)
_CONTEXT_OPTIONS = (
    _option(
        "--context",
        callback=_remember_context,
        metavar="NAME",
        shell_complete=_complete_contexts,
        help="Context of playhead.toml to use.",
    ),
    _option(
        "-b", "--bootstrap-server", callback=_flag("bootstrap-servers"), metavar="HOST:PORT", help="Kafka brokers."
    ),
    _option("--connect", callback=_flag("connect"), metavar="URL", help="Connect workers, comma separated."),
    _option(
        "--worker-config",
        callback=_flag("worker-config"),
        type=FILE,
        metavar="FILE",
        help="A worker.properties file, used unchanged.",
    ),
    _option(
        "--command-config",
        callback=_flag("command-config"),
        type=FILE,
        metavar="FILE",
        help="A Java client.properties file, used unchanged.",
    ),
    _option(
        "-X",
        "overrides",
        callback=_remember_overrides,
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a Kafka client setting (Java or librdkafka name).",
    ),
    _option(
        "--timeout",
        callback=_flag("timeout"),
        metavar="TIME",
        help="Time limit of the whole command, like 30s or 2m [default: 30s].",
    ),
)
_OUTPUT = _option(
    "-o",
    "--output",
    callback=_remember_form,
    type=click.Choice(FORMATS),
    help="Output format [default: table].",
)
to_context_option = click.option(
    "--to-context",
    metavar="NAME",
    shell_complete=_complete_contexts,
    help="Context of the cluster that has DST [default: the same as that of SRC].",
)
_DEBUG = _option("--debug", callback=_remember_debug, is_flag=True, help="Show the trace of an error.")


def context_options(command: F) -> F:
    """Options of commands that use Kafka or Connect: addresses, client settings, timeout."""
    for option in reversed(_CONTEXT_OPTIONS):
        command = option(command)
    return _DEBUG(command)


def many_contexts_options(command: F) -> F:
    """The same for a command that takes `--context` several times. The first is `face.context`, the others are named."""
    several = _option(
        "--context",
        callback=_remember_contexts,
        multiple=True,
        metavar="NAME",
        shell_complete=_complete_contexts,
        help="Context of playhead.toml to use; repeatable.",
    )
    for option in reversed((several, *_CONTEXT_OPTIONS[1:])):
        command = option(command)
    return _DEBUG(command)


def output_option(command: F) -> F:
    """The option of commands that print data."""
    return _OUTPUT(command)


def folded(command: F, options: Sequence[Callable[[Any], Any]], name: str, fold: Callable[[dict[str, Any]], Any]) -> F:
    """Adds options that reach the command as one argument `name`: `fold` removes their values and returns that argument."""

    def wrapped(*args: Any, **words: Any) -> Any:
        value = fold(words)
        return command(*args, **words, **{name: value})

    decorated: Any = update_wrapper(wrapped, command)
    for option in reversed(options):
        decorated = option(decorated)
    return cast(F, decorated)


@contextmanager
def term_interrupts() -> Iterator[None]:
    """Inside of it a SIGTERM is handled as Ctrl-C is: the command reports what it did, and exits with code 130."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


debug_option = _DEBUG
pass_face = click.make_pass_decorator(Face, ensure=True)


def run_command(command: click.Command, name: str) -> NoReturn:
    """Runs a command line and ends the process with its exit code."""
    face = Face()
    face.root = command
    # A command creates many values and few cycles: by default the collector takes a third of the time.
    gc.set_threshold(200_000)
    stdout = sys.stdout
    try:
        code = _code_of(command, name, face)
    except BrokenPipeError:
        code = READER_GONE
    except SystemExit:
        if sys.stdout is stdout:
            raise
        code = READER_GONE  # on a broken pipe click exits with 1 and wraps the streams
    if code == READER_GONE:
        silence()
    sys.exit(code)


def _code_of(command: click.Command, name: str, face: Face) -> int:
    try:
        code = command.main(prog_name=name, standalone_mode=False, obj=face)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.UsageError as error:
        code = _usage(error)
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        code = 130
    except BrokenPipeError:
        raise
    except PlayheadError as error:
        code = _error(error, face)
    except OSError as error:
        _trace(face)
        where = f"{error.filename}: " if error.filename else ""
        say(f"error: {where}{error.strerror or error}", style="red")
        code = 1
    except Exception as error:  # noqa: BLE001  (last resort: a message instead of a trace)
        code = _unexpected(error, name, face)
    finally:
        face.close()
    return code if isinstance(code, int) else 0


def silence() -> None:
    """The reader closed the pipe (| head). Discards all further output, including the interpreter's flush at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(devnull, stream.fileno())


def _trace(face: Face) -> None:
    """With --debug. A trace quotes what servers sent, so it is cleaned as every message is."""
    if face.debug:
        say(face.scrub(traceback.format_exc()).rstrip("\n"))


def _unexpected(error: Exception, name: str, face: Face) -> int:
    """An internal error, unless it wraps an interrupt that came during clean-up."""
    _trace(face)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        say("interrupted")
        return 130
    say(f"{name}: internal error: {type(error).__name__}: {face.scrub(str(error))}", style="red")
    say("  this is a bug; --debug shows the trace")
    return 1


def _usage(error: click.UsageError) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # no arguments: the message is the help
        say(error.format_message())
        return Invalid.exit_code
    if error.ctx:
        say(error.ctx.get_usage())
    words = error.format_message().replace("\n\t", " ")  # a missing choice is followed by a list, one word a line
    say(f"error: {words}", style="red")
    return Invalid.exit_code


def _error(error: PlayheadError, face: Face) -> int:
    _trace(face)
    if isinstance(error, PartFailed):
        for line in error.log_tail:
            say(f"  | {line}")
    say(f"error: {face.scrub.without_known(error.what)}", style="red")
    if error.hint:
        say(f"  {face.scrub.without_known(face.completed(error.hint))}")
    return error.exit_code
