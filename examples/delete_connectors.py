"""Deletes connectors by name or pattern. Their offsets stay, unless --offsets is given.

python examples/delete_connectors.py 'log_*'                       # shows what would happen
python examples/delete_connectors.py 'log_*' --offsets --execute   # deletes them and their offsets
"""

import sys

from playhead import connectors


def main(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    answers = connectors.delete(
        *names, offsets="delete" if "--offsets" in words else "keep", execute="--execute" in words
    )
    print(answers)
    return answers.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
