"""The name of the current user, for journals and ledgers."""

import getpass
import os


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for this user
        return str(os.getuid())
