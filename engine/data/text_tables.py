"""Tables of texts with labels: CSV and tab-separated files through Polars, Parquet through Arrow, as text throughout."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.data._decoded import as_texts, decoded
from engine.data._labels import Brought, Wanted, natural
from engine.errors import DatasetError, SpecError
from engine.safety import check_bytes, kind_of, memory_limit, readable_file
from engine.settings import settings

if TYPE_CHECKING:
    import polars as pl

_TEXT, _LABEL = ("text", "sentence", "review"), ("label", "class", "sentiment")
_COLA = ("source", "label", "mark", "sentence")
_COLA_TITLES = {"0": "unacceptable", "1": "acceptable"}


class TextTables:
    """One example a row. Columns are found by name (text, sentence, review; label, class, sentiment) or named by the caller.

    In tab-separated files quotes are part of the text, as that format has no quoting. A tab-separated file without a header whose four
    columns are those of the Corpus of Linguistic Acceptability (Warstadt et al. 2019) is read as such.
    """

    key = "text_tables"
    title = "a table of texts with labels (csv, tsv, Parquet)"
    endings = (".csv", ".tsv", ".tab", ".txt", ".parquet")
    task = "classification"
    kind = "text"
    requires = ("polars", "pyarrow")

    def sniff(self, path: Path) -> bool:
        """A Parquet file, or a text file that is no web page."""
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            head = stream.read(512)
        if head.startswith(b"PAR1"):
            return True
        named = path.suffix.lower() in (".csv", ".tsv", ".tab", ".txt") and kind_of(path) == "unknown"
        return named or kind_of(path) == "text"

    def open(self, path: Path, wanted: Wanted) -> Brought:
        """Texts `(case,)`. Raises DatasetError for columns that are not there, are nested or ambiguous, and for rows without a value."""
        import polars as pl
        from pyarrow import ArrowException

        what, file = f"texts {path.name}", readable_file(path, "dataset")
        check_bytes(file.stat().st_size, settings().upload_limit, what, "in the file")
        changes: list[str] = []
        try:
            with file.open("rb") as stream:
                parquet = stream.read(4) == b"PAR1"
            frame, cola = (_parquet(file, what, wanted), False) if parquet else _separated(file, what, wanted, changes)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ArrowException, UnicodeDecodeError, OSError) as error:
            said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
            raise DatasetError(
                what,
                found=f"content that cannot be read as a table ({said})",
                expected="rows of equal length" if not parquet else "a complete Parquet file",
                remedy="Check that fields with separators or line breaks are quoted." if not parquet else "Write it again.",
            ) from error
        column, labels = _columns(frame.columns, wanted, what)
        chosen = frame[wanted.rows(len(frame))]
        check_bytes(6 * int(chosen[column].str.len_bytes().sum() or 0), memory_limit(), what, "as texts")
        rows = [f"row {i + 1}" for i in wanted.rows(len(frame)).tolist()]
        texts = as_texts(chosen[column].fill_null("").to_list(), rows, what)
        names: list[Any] = [None] * len(chosen)
        vocabulary: set[str] = set()
        if labels is not None and not wanted.outside:
            whole = _labels(frame[labels], what, changes)
            vocabulary = set(whole.unique().to_list())
            names = whole[wanted.rows(len(frame))].to_list()
            if vocabulary == {"-1"}:
                names, vocabulary = [None] * len(chosen), set()
                changes.append("every label is −1: unknown")
        return Brought("text", texts, names, tuple(sorted(vocabulary, key=natural)), _COLA_TITLES if cola else {}, tuple(changes), (path,))


def _parquet(file: Path, what: str, wanted: Wanted) -> "pl.DataFrame":
    """The two columns as text. Arrow reads them, as Polars ends the whole process on some damaged files."""
    import polars as pl
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(file, page_checksum_verification=True) as content:
        schema = content.schema_arrow
        named = [n for n in _columns(schema.names, wanted, what) if n is not None]
        for name in named:
            kind = schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or (name != named[0] and number)):
                raise DatasetError(
                    what,
                    found=f"column {name!r} of type {schema.field(name).type}",
                    expected="text" if name == named[0] else "text or whole numbers",
                    remedy="Write a column of plain values, or name another with --text or --label (text=, label= in Python).",
                )
        groups = [content.metadata.row_group(i) for i in range(content.metadata.num_row_groups)]
        unpacked = sum(g.column(c).total_uncompressed_size for g in groups for c in range(g.num_columns))
        check_bytes(2 * unpacked + 64 * content.metadata.num_rows * len(named), memory_limit(), what, "unpacked")
        table = content.read(columns=named)
        table.validate(full=True)  # among other things that text is UTF-8
        found = pl.from_arrow(table.cast(pa.schema([(n, pa.large_string()) for n in named])).select(named))
    assert isinstance(found, pl.DataFrame)
    return found


def _separated(file: Path, what: str, wanted: Wanted, changes: list[str]) -> "tuple[pl.DataFrame, bool]":
    """All columns as text, and whether they are CoLA's."""
    import polars as pl

    check_bytes(6 * file.stat().st_size, memory_limit(), what, "as texts")
    content = decoded(file.read_bytes(), wanted.encoding, what)
    lines = content.split("\n", 100)[:100]
    first = next((line for line in lines if line.strip()), "")
    separator = "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
    cola = bool(first) and all(re.fullmatch(r"[^\t]*\t[01]\t[^\t]*\t[^\t]+", line) for line in lines if line)
    frame = pl.read_csv(
        io.BytesIO(content.encode()),
        separator=separator,
        has_header=not cola,
        new_columns=_COLA if cola else None,
        quote_char=None if separator == "\t" else '"',
        infer_schema=False,
    )
    if cola:
        changes.append("no header: columns as in CoLA (source, label, mark, sentence)")
    blank = frame.select(pl.all_horizontal(pl.all().is_null()).alias("blank"))["blank"]
    if blank.any():
        changes.append(f"{int(blank.sum())} blank line(s) left out")
        frame = frame.filter(~blank)
    if not len(frame):
        raise DatasetError(what, found="no rows", expected="one example a row under a line of names", remedy="Check the file.")
    return frame, cola


def _columns(found: list[str], wanted: Wanted, what: str) -> tuple[str, str | None]:
    """The column of texts, and that of labels unless examples from outside the classes have none."""
    text = _column(found, wanted.text, _TEXT, "text", what)
    label = _column(found, wanted.label, _LABEL, "label", what, optional=wanted.outside)
    if text is None or text == label:
        raise SpecError("text, label", found=f"{text!r} for both", expected="two columns", remedy="Name another column for one of them.")
    return text, label


def _column(found: list[str], named: str | None, known: tuple[str, ...], role: str, what: str, optional: bool = False) -> str | None:
    fitting = [n for n in found if n == named] if named is not None else [n for n in found if n.strip().lower() in known]
    if len(fitting) == 1:
        return fitting[0]
    if optional and named is None and not fitting:
        return None
    listed = ", ".join(repr(n[:40]) for n in found[:12]) + (", …" if len(found) > 12 else "")
    raise DatasetError(
        what,
        found=f"columns {listed}" if not fitting else f"several columns that may be the {role}: {', '.join(map(repr, fitting))}",
        expected=f"a column {named!r}" if named is not None else f"one column named {', '.join(known)}",
        remedy=f"Name the column with --{role} ({role}= in Python); the first line of a file holds the names.",
    )


def _labels(column: "pl.Series", what: str, changes: list[str]) -> "pl.Series":
    """Labels as text, numbers such as 1.0 as whole ones; a row without one is refused."""
    column = column.str.strip_chars()
    empty = column.is_null() | column.str.to_lowercase().is_in(["", "nan", "null", "none"])
    if empty.any():
        first = int(empty.arg_true()[0])
        raise DatasetError(
            what,
            found=f"no label in row {first + 1} ({int(empty.sum())} are like it)",
            expected="a label in each row",
            remedy="Fill it in, or leave these rows out.",
        )
    whole = r"^(-?\d+)\.0+$"
    if column.str.contains(whole).all():
        changes.append("labels such as 1.0 read as 1")
        return column.str.replace(whole, "${1}")
    return column


ENTRIES = (TextTables(),)
