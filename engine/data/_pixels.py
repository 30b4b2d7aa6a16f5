"""One image file to pixels through Pillow: formats that hold pictures only, sizes looked at before anything is decoded."""

import io
import struct
import zlib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.errors import DatasetError, UnsafeFileError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"))
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
MAX_PIXELS = 50_000_000
"""Largest single image: a photograph has 10 to 50 million pixels; our choice."""
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"GIF8", b"II*\x00", b"MM\x00*")
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, struct.error, zlib.error)
"""What Pillow's decoders raise on damaged files."""


def looks_like_image(head: bytes) -> bool:
    """Whether a file's first 16 bytes are those of one of the formats."""
    return head.startswith(_MAGIC) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def pixels(data: bytes, what: str, size: tuple[int, int] | None, said: Counter[str]) -> NDArray[np.uint8]:
    """Pixels `(height, width)` of a grey image or `(height, width, 3)` of a coloured one; conversions are counted in `said`.

    The first frame of an animation; palettes looked up; alpha dropped, not blended; 16 bits divided by 257. `size` (height, width)
    resizes bilinearly, with Pillow's antialiasing, whatever the proportions. Raises DatasetError for a damaged image and for 32-bit or
    floating-point pixels, whose range is not known; UnsafeFileError for an image of more than `MAX_PIXELS`.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise _bomb(what, f"{image.width}×{image.height} pixels")
            if getattr(image, "is_animated", False):
                said["first frame of an animation taken"] += 1
            plain = _eight_bits(image, what, said)
            if size is not None and (plain.height, plain.width) != size:
                said[f"resized to {size[0]}×{size[1]} (bilinear)"] += 1
                plain = plain.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return np.asarray(plain, np.uint8)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _bomb(what, "an image that unpacks to far more pixels than any photograph") from error
    except _DAMAGE as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        none = isinstance(error, UnidentifiedImageError)  # whose words are an address in memory
        raise DatasetError(
            what,
            found="a broken image, or a file that is none" if none else f"a broken image ({reason})",
            expected="a complete PNG, JPEG, BMP, GIF, TIFF or WebP file",
            remedy="Copy it again, or leave it out.",
        ) from error


def _eight_bits(image: "Image.Image", what: str, said: Counter[str]) -> "Image.Image":
    """The image as 8-bit grey or colours."""
    from PIL import Image

    # Pillow keeps the high byte of 16-bit colours by itself, and says so only in the name of the raw mode
    raw = " ".join(str(part) for tile in getattr(image, "tile", ()) for part in tuple(tile)[3:])
    deep = ";16" in raw.replace("BGR;16", "")  # which is BMP's 5, 6 and 5 bits
    if image.mode.startswith("I;16"):
        said["16 bits to 8"] += 1
        return Image.fromarray(((np.asarray(image, np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DatasetError(
            what,
            found="32-bit or floating-point pixels",
            expected="8 bits a channel",
            remedy="Scale it to 0 … 255 and save it as PNG.",
        )
    if deep:
        said["16 bits to 8 (high byte)"] += 1
    if "A" in image.getbands() or "transparency" in image.info:
        said["alpha channel dropped"] += 1
    if image.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
        said[f"{image.mode} to RGB"] += 1
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB")


def _bomb(what: str, found: str) -> UnsafeFileError:
    return UnsafeFileError(what, found=found, expected=f"at most {MAX_PIXELS // 10**6} million pixels", remedy="Make it smaller.")
