"""What goes wrong for reasons that the user can mend."""
import importlib


class UsageError(Exception):
    """The words of the command line, or a package that is not installed."""


class InputError(Exception):
    """A file that cannot be read as what it should be."""


def package(name: str, purpose: str):
    """Imports a package that only some uses need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{purpose} needs the Python package {name}, which cannot be imported ({error}): "
                         f"pip install {name}") from None
