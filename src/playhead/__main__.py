"""Entry points of the two commands. Kept free of imports: start-up is a feature."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:  # answered before click is loaded: scripts ask this often
        from playhead import __version__

        try:
            print(f"playhead {__version__}", flush=True)  # noqa: T201  (no face is loaded yet)
        except BrokenPipeError:  # the reader went away: as the other commands end then
            import os

            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except OSError as error:
            sys.exit(f"error: stdout: {error.strerror}")
        return
    from playhead.cli.main import run

    run()


def connect_offsets() -> None:
    from playhead.cli.connect_offsets import run

    run()


if __name__ == "__main__":
    main()
