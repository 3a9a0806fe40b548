"""Entry points of the two commands. Kept free of imports: start-up is a feature."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:  # answered before click is loaded: scripts ask this often
        from playhead import __version__

        sys.stdout.write(f"playhead {__version__}\n")
        return
    from playhead.cli.main import run

    run()


def connect_offsets() -> None:
    from playhead.cli.connect_offsets import run

    run()


if __name__ == "__main__":
    main()
