"""What scripts here ask."""

from collections.abc import Callable

from profiles.ground.errors import RingscopeError


def refused(work: Callable[[], object]) -> str:
    """The message of the error that `work` ends in."""
    try:
        work()
    except RingscopeError as error:
        return str(error)
    return "no error"
