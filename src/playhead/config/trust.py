"""Whether a file that was found, and not named, may be used: only if nobody else can have written it.

A `playhead.toml` above the working directory decides which server gets which secret. In a shared folder another user can put
one there. The rule is that of git's safe.directory, and stricter: the file and its folder belong to the user or to root, and no
one else may write to either. Writing by a group is allowed if the user is its only member.
"""

import grp
import os
import pwd
import stat
from pathlib import Path


def distrust(path: Path) -> str | None:
    """Why the file must not be used; None if it may be. For a link its target is checked too."""
    real = path.resolve()
    for place in dict.fromkeys((path.parent, real.parent, real)):
        try:
            if fault := _fault(place.stat()):
                return f"{'its folder' if place.is_dir() else 'it'} {fault}"
        except OSError as error:
            return f"{place} cannot be checked: {error.strerror}"
    return None


def _fault(found: os.stat_result) -> str | None:
    if found.st_uid not in _own_ids():
        return f"belongs to {_user_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if found.st_mode & stat.S_IWGRP and not _has_no_other_member(found.st_gid):
        return f"can be written by the group {_group_name(found.st_gid)}"
    return None


def _own_ids() -> set[int]:
    """The user and root. For root by sudo also the user who called it, as git does."""
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {0, user} | ({int(caller)} if user == 0 and caller.isdecimal() else set())


def _has_no_other_member(group: int) -> bool:
    """True for a group of one user, as most Linux systems create it with the user."""
    try:
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        return False
    members |= {user.pw_name for user in pwd.getpwall() if user.pw_gid == group}
    return members <= {_user_name(user) for user in _own_ids()}


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
