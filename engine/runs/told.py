"""What is said to people while a verb works: each line goes to stderr, and into the answer's `notes`, so that `--json` says it too.

Progress is no such thing: it is written over, and gone when the answer is there.
"""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)


def tell(line: str) -> None:
    """Say a line on stderr, once an answer, and keep it for the answer."""
    heard = _heard.get()
    if heard is not None:
        if line in heard:
            return
        heard.append(line)
    sys.stderr.write(f"{line}\n")


def told() -> list[str]:
    """What was said since the answer was begun."""
    return list(_heard.get() or ())


class _Libraries(logging.Handler):
    """Warnings that libraries log, told like ours."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one."""
        tell(f"{record.name}: {record.getMessage()}")


@contextmanager
def listening() -> Iterator[None]:
    """Collect what is told, what libraries log as warnings, and Python's own warnings, until the answer is given."""
    token, handler, shown = _heard.set([]), _Libraries(), warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        tell(f"{category.__name__}: {message}")

    logging.getLogger().addHandler(handler)
    warnings.showwarning = show  # what it is for: "may be replaced by another function"
    try:
        yield
    finally:
        warnings.showwarning = shown
        logging.getLogger().removeHandler(handler)
        _heard.reset(token)
