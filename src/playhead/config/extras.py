"""Whether the packages of an extra are installed. A command asks before it loads anything that needs them: an installation may
have some of them, and a run without one of the others would end in the middle of an import."""

from importlib.util import find_spec

from playhead.errors import MissingExtra

PACKAGES = {
    "spark": ("pyspark", "pyarrow", "pandas", "numpy", "sqlalchemy", "adbc_driver_postgresql", "xxhash"),
    "web": ("starlette", "uvicorn", "jinja2", "prometheus_client"),
}


def check_extra(extra: str) -> None:
    for package in PACKAGES[extra]:
        if not _is_installed(package):
            raise MissingExtra(extra, package)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # ValueError: it is blocked
        return False
