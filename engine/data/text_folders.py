"""Texts in files by class: a folder for each class with one text a file, or one file for each class with one text a line."""

from pathlib import Path

from engine.data._decoded import as_texts, decoded
from engine.data._labels import Brought, Wanted, natural, some
from engine.data._members import Member, by_class, holds_members, members
from engine.data._pixels import SUFFIXES, looks_like_image
from engine.errors import DatasetError
from engine.safety import check_bytes, memory_limit

_NOTES = ("readme", "license", "licence", "copying", "sha256sums", "changelog")
_OTHERS = frozenset((*SUFFIXES, ".npy", ".npz", ".csv", ".tsv", ".parquet", ".json", ".html", ".md"))


class TextFolders:
    """Plain text; README and LICENSE files do not count."""

    key = "text_folders"
    title = "text files by class in a folder, or a zip of it"
    endings = (".zip",)
    task = "classification"
    kind = "text"
    requires = ()

    def sniff(self, path: Path) -> bool:
        """Some file is a text, and none of the first is an image."""
        if not holds_members(path):
            return False
        with members(path) as found:
            if any(m.suffix in SUFFIXES for m in found):
                return False
            heads = [m.read(256) for m in found if _is_text(m)][:8]
        return bool(heads) and not any(b"\0" in head or looks_like_image(head) for head in heads)

    def open(self, path: Path, wanted: Wanted) -> Brought:
        """Texts `(case,)`, stripped of blanks around them. Raises DatasetError for text that is not UTF-8, and as `by_class`."""
        what = f"texts {path.name}"
        with members(path) as found:
            check_bytes(6 * sum(m.size for m in found), memory_limit(), what, "as texts")
            mine = [m for m in found if _is_text(m)]
            nested = [m for m in mine if len(m.parts) > 1]
            by_line = len({m.parts[:-1] for m in mine}) == 1 and 2 <= len(mine) <= 50 and _class_of_files(mine) is not None
            taken = {m.name for m in (mine if by_line or wanted.outside else nested)}
            left_out = [m.name for m in found if m.name not in taken]
            if by_line:
                pairs, said = self._lines(mine, wanted, what), ["one example a line of each file, the file being the class"]
            else:
                # beside folders of classes, files at the top are notes and word lists
                chosen = by_class(mine if wanted.outside or not nested else nested, what, "texts", wanted.outside)
                pairs, said = [(name, m.name, m) for name, m in chosen], []
            rows = wanted.rows(len(pairs))
            picked = [pairs[i] for i in rows]
            texts = [t if isinstance(t, str) else decoded(t.read(-1), wanted.encoding, f"text {t.name}").strip() for _, _, t in picked]
        if left_out:
            said.append(f"left out: {some(left_out, 4)}")
        return Brought(
            "text",
            as_texts(texts, [place for _, place, _ in picked], what),
            [name for name, _, _ in picked],
            tuple(sorted({name for name, _, _ in pairs if name is not None}, key=natural)),
            changes=tuple(said),
            sources=(path,),
        )

    def _lines(self, mine: list[Member], wanted: Wanted, what: str) -> list[tuple[str | None, str, str]]:
        """Class, place and text of each line that is not blank."""
        classes, found = _class_of_files(mine), []
        assert classes is not None
        for name, member in zip(classes, mine, strict=True):
            for number, line in enumerate(decoded(member.read(-1), wanted.encoding, f"text {member.name}").split("\n"), 1):
                if line.strip():
                    found.append((None if wanted.outside else name, f"line {number} of {member.name}", line.strip()))
        if not found:
            raise DatasetError(what, found="blank lines only", expected="one text a line", remedy="Check the files.")
        return found


def _is_text(member: Member) -> bool:
    return member.suffix not in _OTHERS and member.parts[-1].split(".")[0].lower() not in _NOTES


def _class_of_files(mine: list[Member]) -> list[str] | None:
    """What tells the files' names apart: neg and pos of `rt-polarity.neg`, `rt-polarity.pos`; None where they differ in more."""
    names = [m.parts[-1].split(".") for m in mine]
    if len({len(parts) for parts in names}) != 1:
        return None
    differing = [column for column in zip(*names, strict=True) if len(set(column)) > 1]
    return list(differing[0]) if len(differing) == 1 and len(set(differing[0])) == len(mine) else None


ENTRIES = (TextFolders(),)
