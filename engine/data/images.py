"""Images in a folder for each class, or a zip archive of such a folder."""

from collections import Counter
from pathlib import Path

import numpy as np

from engine.data._labels import Brought, Wanted, natural, some
from engine.data._members import Member, by_class, holds_members, members
from engine.data._pixels import SUFFIXES, looks_like_image, pixels
from engine.errors import DatasetError
from engine.safety import check_bytes, memory_limit

_OTHERS = frozenset((".txt", ".md", ".csv", ".tsv", ".json", ".xml", ".npy", ".html"))
_GLANCE = 32
"""Files of unknown ending that are looked into before a folder is said to hold no images."""


class ImageFolders:
    """PNG, JPEG, BMP, GIF, TIFF or WebP by first bytes or name; the folder's name is the class."""

    key = "images"
    title = "images in a folder for each class, or a zip of it"
    endings = (".zip",)
    task = "classification"
    kind = "images"
    requires = ()

    def sniff(self, path: Path) -> bool:
        """Some file is an image."""
        if not holds_members(path):
            return False
        with members(path) as found:
            if any(m.suffix in SUFFIXES for m in found):
                return True
            return any(_is_image(m) for m in [m for m in found if m.suffix not in _OTHERS][:_GLANCE])

    def open(self, path: Path, wanted: Wanted) -> Brought:
        """Pixels `(case, height, width, channel)` uint8, one channel where every image is grey.

        Raises DatasetError for images of several sizes unless `wanted.size` names one, and as `_pixels.pixels`.
        """
        what, said = f"images {path.name}", Counter[str]()
        with members(path) as found:
            mine = [m for m in found if _is_image(m)]
            pairs = by_class(mine, what, "images", wanted.outside)
            rows = wanted.rows(len(pairs))
            chosen = [pairs[i] for i in rows]
            stack = self._read([m for _, m in chosen], what, wanted, said)
            taken = {m.name for m in mine}
            left_out = [m.name for m in found if m.name not in taken]
        changes = [f"{count} of {len(chosen)} images: {change}" for change, count in said.items()]
        if left_out:
            changes.append(f"left out, no images: {some(left_out, 4)}")
        return Brought(
            "images",
            stack,
            [name for name, _ in chosen],
            tuple(sorted({name for name, _ in pairs if name is not None}, key=natural)),
            changes=tuple(changes),
            sources=(path,),
        )

    def _read(self, chosen: list[Member], what: str, wanted: Wanted, said: Counter[str]) -> np.ndarray:
        images: list[np.ndarray] = []
        for member in chosen:
            image = pixels(member.read(-1), f"image {member.name}", wanted.size, said)
            check_bytes(2 * len(chosen) * image.nbytes, memory_limit(), what, "as pixels")
            if images and image.shape[:2] != images[0].shape[:2]:
                (h, w), (h2, w2) = images[0].shape[:2], image.shape[:2]
                raise DatasetError(
                    what,
                    found=f"{h}×{w} pixels in {chosen[0].name} and {h2}×{w2} in {member.name}",
                    expected="images of one size",
                    remedy=f"Name a size to bring them to, for example {h}x{w}, with --size (size= in Python).",
                )
            images.append(image)
        coloured = sum(image.ndim == 3 for image in images)
        if 0 < coloured < len(images):
            said["grey repeated in three channels"] = len(images) - coloured
        return np.stack([i if i.ndim == 3 else np.repeat(i[..., None], 3 if coloured else 1, axis=2) for i in images])


def _is_image(member: Member) -> bool:
    return member.suffix in SUFFIXES or (member.suffix not in _OTHERS and looks_like_image(member.read(16)))


ENTRIES = (ImageFolders(),)
