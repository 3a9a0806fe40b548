"""Debian's chromium for the tests of the pages. Where it is not installed and cannot be, these tests are skipped by name."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INSTALL_SECONDS = 120  # less than a test may take


@cache
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(install, capture_output=True, check=False, timeout=INSTALL_SECONDS)
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed: the tests of the pages in a browser are skipped")
    return found


@contextmanager
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()
