"""What the engine raises when it refuses: what was found, what was expected, and what to do about it."""


class EngineError(Exception):
    """A refusal that a user can act on; faults of ours are ordinary exceptions.

    `what` names the subject ("checkpoint climax.ckpt"), `found` and `expected` are short facts, `remedy` is an
    instruction. All four are plain text: they are shown as text, never rendered as Markdown.
    """

    def __init__(self, what: str, *, found: str, expected: str, remedy: str) -> None:
        super().__init__(f"{what}: found {found}; expected {expected}. {remedy}")
        self.what, self.found, self.expected, self.remedy = what, found, expected, remedy

    def as_dict(self) -> dict[str, str]:
        """The error document of the command line and of a run's row."""
        return {"what": self.what, "found": self.found, "expected": self.expected, "remedy": self.remedy}

    def __reduce__(self) -> tuple:
        """Errors cross process borders; keyword-only arguments would not survive the default pickling."""
        return _rebuild, (type(self), self.as_dict())


def _rebuild(kind: type[EngineError], fields: dict[str, str]) -> EngineError:
    what = fields.pop("what")
    return kind(what, **fields)


class CheckpointError(EngineError):
    """A checkpoint that cannot be read, or does not fit the architecture that was named."""


class UnsafeFileError(EngineError):
    """A file that would run code, unpack without bound, or read other files of this machine."""


class DatasetError(EngineError):
    """Data that cannot be read, or does not fit the model."""


class AttentionError(EngineError):
    """A model whose attention cannot be reached, or cannot be replayed."""


class SpecError(EngineError):
    """A request that is not well formed."""


class ScoreError(EngineError):
    """A score that cannot be computed from what was given."""


class CalibrationError(EngineError):
    """Numbers from which no ν can be calibrated."""


class RunError(EngineError):
    """A run that cannot be found, started, resumed or cancelled."""


class ExportError(EngineError):
    """A picture or a file that cannot be written."""
