"""Whether the packages of the extra `spark` are installed. Asked before anything of the pipeline is loaded: `lab` brings PySpark
without the others, and a run without one of them would end in the middle of an import."""

from importlib.util import find_spec

from playhead.errors import MissingExtra

PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "sqlalchemy")


def check_extra() -> None:
    for package in PACKAGES:
        if not _is_installed(package):
            raise MissingExtra("spark", package)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
