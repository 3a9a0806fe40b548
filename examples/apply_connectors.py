"""Plans connector files and, with --execute, applies them.

python examples/apply_connectors.py examples/file_source.yaml            # shows the plan
python examples/apply_connectors.py examples/file_source.yaml --execute  # executes it
"""

import sys

from playhead import connectors


def main(words: list[str]) -> int:
    files = [word for word in words if not word.startswith("-")]
    if "--execute" not in words:
        print(connectors.plan(*files))
        return 0
    applied = connectors.apply(*files, execute=True)
    print(applied)
    return applied.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
