"""Entry points of the two commands. No top-level imports, to keep start-up fast."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:  # answered before click is loaded: scripts call this often
        from playhead import __version__

        try:
            print(f"playhead {__version__}", flush=True)  # noqa: T201  (the output layer is not loaded yet)
        except BrokenPipeError:  # the reader closed the pipe: same exit code as the other commands
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
