"""Whether the packages of the extra `web` are installed. Asked before anything else of this package is loaded."""

from importlib.util import find_spec

from playhead.errors import MissingExtra

PACKAGES = ("starlette", "uvicorn", "jinja2", "prometheus_client")


def check_extra() -> None:
    for package in PACKAGES:
        if _is_missing(package):
            raise MissingExtra("web", package)


def _is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except (ModuleNotFoundError, ValueError):  # ValueError: it is blocked
        return True
