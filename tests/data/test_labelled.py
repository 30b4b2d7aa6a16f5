"""Labelled images and texts: what is read, what is said about it, and what is refused."""

import contextlib
import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from engine.data import open_dataset, open_labelled
from engine.errors import DatasetError, SpecError, UnsafeFileError
from engine.settings import DEMO, settings

SHARED = Path(__file__).parents[3] / "shared/data"


def picture(value=0, size=(6, 5), mode="RGB", form="PNG", **options) -> bytes:
    """An encoded image of width × height whose every pixel has one value."""
    sink = io.BytesIO()
    Image.new(mode, size, value).save(sink, form, **options)
    return sink.getvalue()


def tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


PETS = {"cat/1.png": picture((1, 2, 3)), "cat/10.png": picture((10,) * 3), "cat/2.png": picture((2,) * 3), "dog/1.png": picture((7,) * 3)}


# --- images in folders and archives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("archive", [False, True])
def test_a_folder_for_each_class(tmp_path, archive):
    path = packed(tmp_path / "pets.zip", {f"pets/{n}": c for n, c in PETS.items()}) if archive else tree(tmp_path / "pets", PETS)
    found = open_labelled(path)
    assert (found.kind, found.classes, found.inputs.dtype, found.inputs.shape) == ("images", ("cat", "dog"), np.uint8, (4, 5, 6, 3))
    assert found.inputs[:, 0, 0, 2].tolist() == [3, 2, 10, 7]  # files in natural order
    assert found.labels.tolist() == [0, 0, 0, 1]
    assert found.changes == ()
    assert len(found.fingerprint) == 64


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP"])
def test_each_format_by_content_not_by_name(tmp_path, form):
    options = {"lossless": True} if form == "WEBP" else {}
    files = {"a/x": picture((90, 90, 90), form=form, **options), "b/y": picture((9, 9, 9), form=form, **options)}
    found = open_labelled(tree(tmp_path / "d", files))
    assert np.abs(found.inputs[:, 2, 2, 0].astype(int) - [90, 9]).max() <= 1


def test_grey_images_have_one_channel_and_three_beside_colours(tmp_path):
    grey = {"a/1.png": picture(5, mode="L"), "b/1.png": picture(6, mode="L")}
    assert open_labelled(tree(tmp_path / "grey", grey)).inputs.shape == (2, 5, 6, 1)
    mixed = open_labelled(tree(tmp_path / "mixed", grey | {"b/2.png": picture((1, 2, 3))}))
    assert mixed.inputs[:, 0, 0].tolist() == [[5, 5, 5], [6, 6, 6], [1, 2, 3]]
    assert mixed.changes == ("2 of 3 images: grey repeated in three channels",)


def test_conversions_are_said(tmp_path):
    deep = io.BytesIO()
    Image.fromarray(np.full((5, 6), 65535, np.uint16)).save(deep, "PNG")
    frames = io.BytesIO()
    Image.new("RGB", (6, 5), (255, 0, 0)).save(frames, "GIF", save_all=True, append_images=[Image.new("RGB", (6, 5), (0, 255, 0))])
    files = {"a/alpha.png": picture((10, 20, 30, 128), mode="RGBA"), "a/deep.png": deep.getvalue(), "b/moves.gif": frames.getvalue()}
    found = open_labelled(tree(tmp_path / "d", files))
    assert found.inputs[:, 0, 0].tolist() == [[10, 20, 30], [255, 255, 255], [255, 0, 0]]  # alpha dropped, not blended
    assert " ".join(found.changes).count("1 of 3 images") == 4
    for words in ("alpha channel dropped", "16 bits to 8", "first frame", "grey repeated"):
        assert words in " ".join(found.changes)


def test_sixteen_bit_colours_are_said_too(tmp_path):
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" + b"\x80\x01" * 6)) + chunk(b"IEND", b"")
    found = open_labelled(tree(tmp_path / "d", {"a/1.png": png, "b/1.png": picture((0, 0, 0), size=(2, 1))}))
    assert found.inputs[0, 0].tolist() == [[128] * 3] * 2
    assert found.changes == ("1 of 2 images: 16 bits to 8 (high byte)",)


def test_sizes_must_agree_unless_one_is_named(tmp_path):
    folder = tree(tmp_path / "d", {"a/1.png": picture((1, 1, 1)), "b/2.png": picture((2, 2, 2), size=(8, 8))})
    with pytest.raises(DatasetError, match=r"5×6 pixels in a/1\.png and 8×8 in b/2\.png.*for example 5x6, with --size \(size= in Python\)"):
        open_labelled(folder)
    found = open_labelled(folder, size=8)
    assert found.inputs.shape == (2, 8, 8, 3)
    assert found.changes == ("1 of 2 images: resized to 8×8 (bilinear)",)


def test_a_broken_image_is_named(tmp_path):
    whole = picture((9, 8, 7), size=(40, 40), form="JPEG")
    with pytest.raises(DatasetError, match=r"dog/3\.jpg.*broken image"):
        open_labelled(tree(tmp_path / "cut", {"cat/1.jpg": whole, "dog/3.jpg": whole[: len(whole) // 2]}))
    with pytest.raises(DatasetError, match=r"dog/4\.png.*broken image"):
        open_labelled(tree(tmp_path / "none", {"cat/1.png": PETS["cat/1.png"], "dog/4.png": b"nothing"}))


def test_what_is_no_image_is_left_out_and_said_and_droppings_are_not(tmp_path):
    files = PETS | {"README.md": b"pets", ".DS_Store": b"x", "cat/Thumbs.db": b"x", "__MACOSX/cat/1.png": b"x", "dog/notes": b"x"}
    found = open_labelled(tree(tmp_path / "d", files))
    assert len(found) == 4
    assert found.changes == ("left out, no images: 'README.md', 'dog/notes'",)


def test_folders_that_are_not_one_for_each_class(tmp_path):
    with pytest.raises(DatasetError, match="folders within folders: 'test', 'train'"):
        open_labelled(tree(tmp_path / "deep", {f"{part}/{n}": c for part in ("train", "test") for n, c in PETS.items()}))
    with pytest.raises(DatasetError, match=r"no class's folder: 'stray\.png'"):
        open_labelled(tree(tmp_path / "stray", PETS | {"stray.png": picture((0, 0, 0))}))
    with pytest.raises(DatasetError, match="one class only: 'cat'"):
        open_labelled(tree(tmp_path / "one", {n: c for n, c in PETS.items() if n.startswith("cat")}))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="empty folder"):
        open_labelled(tmp_path / "empty")


# --- the model's classes ----------------------------------------------------------------------------------------------------------------


def test_names_are_mapped_to_the_models_order(tmp_path):
    folder = tree(tmp_path / "pets", PETS)
    found = open_labelled(folder, classes=["dog", "bird", "cat"])
    assert found.classes == ("dog", "bird", "cat")
    assert found.labels.tolist() == [2, 2, 2, 0]
    with pytest.raises(DatasetError, match=r"label\(s\) 'cat'.*expected the classes 'dog', 'bird'"):
        open_labelled(folder, classes=["dog", "bird"])
    outside = open_labelled(folder, classes=["dog", "bird"], outside=True)
    assert outside.labels.tolist() == [-1] * 4
    assert outside.classes == ("dog", "bird")
    assert "outside the classes" in outside.changes[-1]
    with pytest.raises(SpecError, match="each name once"):
        open_labelled(folder, classes=["cat", "dog", "cat"])


def test_one_class_is_enough_where_the_model_names_them(tmp_path):
    folder = tree(tmp_path / "one", {"cat/1.png": PETS["cat/1.png"]})
    assert open_labelled(folder, classes=["dog", "cat"]).labels.tolist() == [1]


def test_names_that_a_folder_cannot_have_are_matched_and_said(tmp_path):
    folder = tree(tmp_path / "d", {"T-shirt_top/1.png": PETS["cat/1.png"], "trouser/1.png": PETS["dog/1.png"]})
    found = open_labelled(folder, classes=["Trouser", "T-shirt/top"])
    assert found.labels.tolist() == [1, 0]
    assert "'T-shirt_top' as 'T-shirt/top'" in found.changes[0]
    with pytest.raises(DatasetError, match="T-shirt_top"):  # two classes of the model would fit
        open_labelled(folder, classes=["Trouser", "T-shirt/top", "tshirt top"])


def test_numbers_are_positions_only_where_no_class_is_called_so(tmp_path):
    folder = tree(tmp_path / "d", {"0/1.png": PETS["cat/1.png"], "1/1.png": PETS["dog/1.png"]})
    found = open_labelled(folder, classes=["cat", "dog", "owl"])
    assert found.labels.tolist() == [0, 1]
    assert "positions in the model's classes: 0 = cat, 1 = dog" in found.changes[0]
    assert open_labelled(folder, classes=["1", "0"]).labels.tolist() == [1, 0]
    with pytest.raises(DatasetError, match=r"label\(s\) '0'"):
        open_labelled(folder, classes=["1", "2"])
    (folder / "0").rename(folder / "3")
    with pytest.raises(DatasetError, match=r"label\(s\) 3.*from 0 to 2"):
        open_labelled(folder, classes=["cat", "dog", "owl"])


def test_minus_one_and_one_are_two_names(tmp_path):
    (tmp_path / "s.csv").write_text("text,sentiment\na,-1\nb,1\n")
    assert open_labelled(tmp_path / "s.csv").classes == ("-1", "1")
    with pytest.raises(DatasetError, match="-1"):
        open_labelled(tmp_path / "s.csv", classes=["bad", "good"])
    with pytest.raises(DatasetError, match="-1"):
        open_labelled(tmp_path / "s.csv", classes=["1", "2"])


def test_limit_spreads_over_the_source_and_changes_the_fingerprint(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(40, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8), y=np.arange(40) // 10)
    whole, some = open_labelled(tmp_path / "a.npz"), open_labelled(tmp_path / "a.npz", limit=8)
    assert some.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert some.inputs[:, 0, 0, 0].tolist() == [0, 5, 10, 15, 20, 25, 30, 35]
    assert whole.fingerprint != some.fingerprint
    assert open_labelled(tmp_path / "a.npz", limit=1).classes == whole.classes  # classes are those of the whole
    with pytest.raises(SpecError, match="limit"):
        open_labelled(tmp_path / "a.npz", limit=0)


def test_fingerprint_is_of_the_content_not_of_the_name(tmp_path):
    one, two = packed(tmp_path / "a.zip", PETS), tmp_path / "b.zip"
    two.write_bytes(one.read_bytes())
    assert open_labelled(one).fingerprint == open_labelled(two).fingerprint
    other = packed(tmp_path / "c.zip", PETS | {"dog/1.png": picture((8, 8, 8))})
    assert open_labelled(one).fingerprint != open_labelled(other).fingerprint


# --- arrays -----------------------------------------------------------------------------------------------------------------------------


def save(path: Path, images, labels=None, **more) -> Path:
    np.savez(path, images=images, **({} if labels is None else {"labels": labels}), **more)
    return path


GREYS = np.arange(4, dtype=np.uint8)[:, None, None] * np.ones((1, 5, 6), np.uint8)


@pytest.mark.parametrize("layout", ["grey", "last", "first", "alpha"])
def test_layouts_of_arrays(tmp_path, layout):
    last = np.stack([GREYS, GREYS + 50, GREYS + 100], -1)
    images = {"grey": GREYS, "last": last, "first": np.moveaxis(last, -1, 1), "alpha": np.concatenate([last, last[..., :1]], -1)}[layout]
    found = open_labelled(save(tmp_path / "a.npz", images, [0, 1, 1, 0], classes=np.array(["zebra", "ant"])))
    assert np.array_equal(found.inputs, GREYS[..., None] if layout == "grey" else last)
    assert found.classes == ("zebra", "ant")  # the file's order, not the alphabet's
    assert found.labels.tolist() == [0, 1, 1, 0]
    expected = {"first": ("channels moved to the end",), "alpha": ("alpha channel dropped",)}
    assert found.changes == expected.get(layout, ())


@pytest.mark.parametrize("names", [("x", "y"), ("data", "targets"), ("X", "Labels")])
def test_names_of_arrays(tmp_path, names):
    np.savez_compressed(tmp_path / "a.npz", **{names[0]: GREYS, names[1]: np.array([[0], [1], [2], [-1]])})
    assert open_labelled(tmp_path / "a.npz").labels.tolist() == [0, 1, 2, -1]


def test_fractions_and_wide_integers_become_bytes_and_it_is_said(tmp_path):
    found = open_labelled(save(tmp_path / "f.npz", (GREYS / 3).astype(np.float32), [0, 1, 0, 1]))
    assert found.inputs[:, 0, 0, 0].tolist() == [0, 85, 170, 255]
    assert found.changes == ("float32 pixels from 0 … 1 to 0 … 255",)
    wide = open_labelled(save(tmp_path / "i.npz", GREYS.astype(np.int64), [0, 1, 0, 1]))
    assert np.array_equal(wide.inputs[..., 0], GREYS)
    assert wide.changes == ("int64 pixels to uint8",)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.where(np.arange(4)[:, None, None] == 2, np.nan, GREYS / 3), "NaN or infinite pixels in image 2"),
        (GREYS / 3 * 2 - 1, "pixels from -1 to 1"),
        (GREYS.astype(np.uint16) * 1000, "pixels from 0 to 3000"),
        (GREYS > 1, "type bool"),
        (GREYS[..., None, None], "shape"),
        (np.repeat(GREYS[..., None], 2, -1), r"shape \(4, 5, 6, 2\)"),
        ((GREYS % 2).astype(np.uint8), "all 0 or 1.*Multiply by 255"),
        ((GREYS % 2).astype(np.int64), "all 0 or 1"),
    ],
    ids=["NaN", "normalised", "16 bits", "bool", "5-D", "two channels", "0 and 1", "0 and 1, wide"],
)
def test_arrays_that_are_no_images(tmp_path, images, words):
    with pytest.raises(DatasetError, match=words):
        open_labelled(save(tmp_path / "a.npz", images, [0, 1, 0, 1]))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1, 1], r"labels \(3,\) for 4 images"),
        (np.eye(4), r"labels \(4, 4\)"),
        ([0, 1, 2, 0], "label 2 of image 2.*from 0 to 1"),
        ([0, 1, -2, 0], "label -2 of image 2"),
        ([0, 1, np.nan, 0], "label nan of image 2"),
        ([0, 1, 0.5, 0], r"label 0\.5 of image 2"),
        (["a", "b", "c", "a"], r"label\(s\) 'c'"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, labels, words):
    with pytest.raises(DatasetError, match=words):
        open_labelled(save(tmp_path / "a.npz", GREYS, labels, classes=np.array(["a", "b"])))


def test_labels_as_names(tmp_path):
    found = open_labelled(save(tmp_path / "a.npz", GREYS, ["b", "a", "b", "a"]), classes=["b", "a"])
    assert found.labels.tolist() == [0, 1, 0, 1]
    listed = open_labelled(save(tmp_path / "b.npz", GREYS, ["b", "a", "b", "a"], classes=["b", "a"]))
    assert listed.labels.tolist() == [0, 1, 0, 1]


def test_classes_of_the_file_are_mapped_to_the_models(tmp_path):
    path = save(tmp_path / "a.npz", GREYS, [0, 1, 1, 0], classes=np.array(["zebra", "ant"]))
    assert open_labelled(path, classes=["ant", "bee", "zebra"]).labels.tolist() == [2, 0, 0, 2]
    with pytest.raises(DatasetError, match="expected the classes 'ant', 'bee'"):  # named classes are never taken for positions
        open_labelled(path, classes=["ant", "bee"])


def test_npy_with_and_without_labels_beside_it(tmp_path):
    np.save(tmp_path / "a.npy", GREYS)
    alone = open_labelled(tmp_path / "a.npy")
    assert alone.labels.tolist() == [-1] * 4
    assert alone.changes == ("no labels: every label is unknown",)
    np.save(tmp_path / "a_labels.npy", np.array([3, 1, 3, 1]))
    found = open_labelled(tmp_path / "a.npy")
    assert found.classes == ("1", "3")
    assert found.labels.tolist() == [1, 0, 1, 0]
    assert [p.name for p in found.sources] == ["a.npy", "a_labels.npy"]
    before = found.fingerprint
    np.save(tmp_path / "a_labels.npy", np.array([3, 1, 1, 1]))
    assert open_labelled(tmp_path / "a.npy").fingerprint != before


def test_an_npz_of_other_names_is_told_what_it_holds(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=GREYS, y_train=[0, 1, 0, 1])
    with pytest.raises(DatasetError, match=r"x_train \(4, 5, 6\), y_train \(4,\)"):
        open_labelled(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=GREYS, data=GREYS)
    with pytest.raises(DatasetError, match="x and data"):
        open_labelled(tmp_path / "b.npz")


# --- texts ------------------------------------------------------------------------------------------------------------------------------

ROWS = {"review": ["Good, really “good”.", "bad;\nawful"], "sentiment": ["pos", "neg"], "id": [1, 2]}


@pytest.mark.parametrize("form", ["csv", "semicolon", "parquet", "bom"])
def test_tables(tmp_path, form):
    frame, path = pl.DataFrame(ROWS), tmp_path / f"a.{'parquet' if form == 'parquet' else 'csv'}"
    frame.write_parquet(path) if form == "parquet" else frame.write_csv(
        path, separator=";" if form == "semicolon" else ",", include_bom=form == "bom"
    )
    found = open_labelled(path)
    assert (found.kind, found.classes, found.labels.tolist()) == ("text", ("neg", "pos"), [1, 0])
    assert found.inputs.tolist() == ROWS["review"]
    assert all(type(text) is str for text in found.inputs)


def test_tab_separated_quotes_are_text(tmp_path):
    (tmp_path / "a.tsv").write_text('sentence\tlabel\n"Stop" he said, twice\t1\nGo "on\t0\n')
    found = open_labelled(tmp_path / "a.tsv")
    assert found.inputs.tolist() == ['"Stop" he said, twice', 'Go "on']
    assert found.labels.tolist() == [1, 0]


COLA = 'gj04\t1\t\tThe sailors rode, "free".\nclc95\t0\t*\tBooks were sent by.\n'


def test_cola_without_a_header(tmp_path):
    (tmp_path / "dev.tsv").write_text(COLA)
    found = open_labelled(tmp_path / "dev.tsv")
    assert found.classes == ("unacceptable", "acceptable")
    assert found.labels.tolist() == [1, 0]
    assert found.inputs[0] == 'The sailors rode, "free".'
    assert "CoLA" in found.changes[0]
    assert open_labelled(tmp_path / "dev.tsv", classes=["acceptable", "unacceptable"]).labels.tolist() == [0, 1]
    assert open_labelled(tmp_path / "dev.tsv", classes=["1", "0"]).labels.tolist() == [0, 1]
    with pytest.raises(DatasetError, match="'negative', 'positive'"):
        open_labelled(tmp_path / "dev.tsv", classes=["negative", "positive"])


def test_columns_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("body,stars,text,label\nx,1.0,p,a\ny,2.0,q,b\n")
    assert open_labelled(tmp_path / "a.csv").inputs.tolist() == ["p", "q"]
    found = open_labelled(tmp_path / "a.csv", text="body", label="stars")
    assert (found.inputs.tolist(), found.classes) == (["x", "y"], ("1", "2"))
    assert found.changes == ("labels such as 1.0 read as 1",)
    with pytest.raises(DatasetError, match="columns 'body', 'stars', 'text', 'label'; expected a column 'words'"):
        open_labelled(tmp_path / "a.csv", text="words")
    with pytest.raises(SpecError, match="both"):
        open_labelled(tmp_path / "a.csv", text="body", label="body")
    (tmp_path / "b.csv").write_text("text,review,label\nx,1,p\ny,2,q\n")
    with pytest.raises(DatasetError, match="several columns that may be the text: 'text', 'review'"):
        open_labelled(tmp_path / "b.csv")


def test_missing_column_lists_those_found(tmp_path):
    (tmp_path / "a.csv").write_text("words,mark\nx,1\n")
    with pytest.raises(DatasetError, match=r"columns 'words', 'mark'.*--text \(text= in Python\)"):
        open_labelled(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("text\nx\n")
    with pytest.raises(DatasetError, match=r"--label \(label= in Python\)"):
        open_labelled(tmp_path / "b.csv")
    assert open_labelled(tmp_path / "b.csv", outside=True).labels.tolist() == [-1]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a,\nb,1\n", "no label in row 1"),
        ("a,1\nb,NaN\n", "no label in row 2"),
        (",1\nb,0\n", "no text in row 1"),
        ("a,1\nb,0,7\n", "cannot be read as a table"),
        ("", "no rows"),
        ("a,1\nb,1\n", "one class only: '1'"),
    ],
)
def test_rows_that_are_not_whole(tmp_path, rows, words):
    (tmp_path / "a.csv").write_text("text,label\n" + rows)
    with pytest.raises(DatasetError, match=words):
        open_labelled(tmp_path / "a.csv")


def test_blank_lines_are_left_out_and_hidden_labels_are_unknown(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,-1\n\nb,-1\n\n")
    found = open_labelled(tmp_path / "a.csv")
    assert found.labels.tolist() == [-1, -1]
    assert "every label is −1: unknown" in found.changes


def test_text_that_is_not_utf8_needs_its_encoding(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,label\nplain,0\ncafé,1\n".encode("latin-1"))
    with pytest.raises(DatasetError, match=r"line 3 that are not UTF-8.*like latin-1, .*--encoding \(encoding= in Python\)"):
        open_labelled(tmp_path / "a.csv")
    assert open_labelled(tmp_path / "a.csv", encoding="latin-1").inputs[1] == "café"
    (tmp_path / "b.csv").write_bytes("text,label\nplain,0\ncafé,1\n".encode("utf-16"))
    with pytest.raises(DatasetError, match="not UTF-8"):
        open_labelled(tmp_path / "b.csv")
    assert open_labelled(tmp_path / "b.csv", encoding="utf-16").inputs[1] == "café"
    with pytest.raises(SpecError, match="encoding"):
        open_labelled(tmp_path / "a.csv", encoding="klingon")


@pytest.mark.parametrize("archive", [False, True])
def test_texts_in_a_folder_for_each_class(tmp_path, archive):
    files = {"neg/1.txt": b"bad \n film\n", "pos/1.txt": "très bien".encode(), "pos/2.txt": b"good", "README": b"reviews"}
    path = packed(tmp_path / "r.zip", {f"r/{n}": c for n, c in files.items()}) if archive else tree(tmp_path / "r", files)
    found = open_labelled(path)
    assert found.inputs.tolist() == ["bad \n film", "très bien", "good"]
    assert (found.classes, found.labels.tolist()) == (("neg", "pos"), [0, 1, 1])
    assert found.changes == ("left out: 'README'",)


def test_one_file_for_each_class(tmp_path):
    files = {"p/rt-polarity.neg": b"bad\n\n awful \n", "p/rt-polarity.pos": b"good\n", "p/README.txt": b"x"}
    found = open_labelled(packed(tmp_path / "p.zip", files))
    assert found.inputs.tolist() == ["bad", "awful", "good"]
    assert (found.classes, found.labels.tolist()) == (("neg", "pos"), [0, 0, 1])
    assert "one example a line" in found.changes[0]


def test_a_text_file_that_is_not_utf8_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"pos/1\.txt.*line 1"):
        open_labelled(tree(tmp_path / "r", {"neg/1.txt": b"bad", "pos/1.txt": b"caf\xe9"}))


# --- hostile files ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../cat/1.png", "/cat/1.png", "cat/../../1.png", "C:/cat/1.png", "cat\\..\\..\\1.png"])
def test_names_that_leave_the_archive(tmp_path, name):
    with pytest.raises(UnsafeFileError, match="leaves its folder"):
        open_labelled(packed(tmp_path / "a.zip", PETS | {name: picture((0, 0, 0))}))


def test_links_in_archives_and_folders(tmp_path):
    path = packed(tmp_path / "a.zip", PETS)
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("dog/link.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UnsafeFileError, match="symbolic link"):
        open_labelled(path)
    secret = tree(tmp_path / "secret", {"s.png": picture((0, 0, 0))})
    for target in (secret / "s.png", secret):
        folder = tree(tmp_path / f"d-{target.name}", PETS)
        (folder / "dog" / "link").symlink_to(target)
        with pytest.raises(UnsafeFileError, match="symbolic link: 'dog/link'"):
            open_labelled(folder)
    os.mkfifo(tree(tmp_path / "pipe", PETS) / "dog" / "9.png")
    with pytest.raises(UnsafeFileError, match="device or pipe"):
        open_labelled(tmp_path / "pipe")


def test_archives_that_unpack_without_bound(tmp_path, monkeypatch):
    with pytest.raises(UnsafeFileError, match="bytes unpack to 20000000"):
        open_labelled(packed(tmp_path / "ratio.zip", PETS | {"dog/2.bmp": bytes(20_000_000)}))
    monkeypatch.setenv("NUSCOPE_UPLOAD_LIMIT", "100000")
    settings.cache_clear()
    many = {f"{'ab'[i % 2]}/{i}.txt": bytes([65 + i]) * 3000 for i in range(60)}
    with pytest.raises(UnsafeFileError, match="NUSCOPE_UPLOAD_LIMIT"):
        open_labelled(packed(tmp_path / "many.zip", many))
    with pytest.raises(UnsafeFileError, match="NUSCOPE_UPLOAD_LIMIT"):
        open_labelled(tree(tmp_path / "many", many))


def test_an_image_that_decodes_without_bound(tmp_path):
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    for side in (8_000, 50_000):  # below and above what Pillow itself refuses
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0))
        png = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
        with pytest.raises(UnsafeFileError, match=r"dog/b\.png.*at most 50 million pixels"):
            open_labelled(tree(tmp_path / f"d{side}", PETS | {"dog/b.png": png}))


def test_only_picture_formats_are_decoded(tmp_path):
    """PostScript would start another program."""
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 5\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(DatasetError, match="broken image"):
        open_labelled(tree(tmp_path / "d", PETS | {"dog/2.png": script}))


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    evil = np.array([Evil(), Evil()], dtype=object)
    np.savez(tmp_path / "a.npz", images=GREYS, labels=evil)
    np.savez(tmp_path / "b.npz", images=GREYS, labels=[0, 1, 0, 1], other=evil)
    np.save(tmp_path / "c.npy", evil)
    np.save(tmp_path / "d.npy", GREYS)
    np.save(tmp_path / "d_labels.npy", evil)
    for name in ("a.npz", "b.npz", "c.npy", "d.npy"):
        with pytest.raises(UnsafeFileError, match="Python objects"):
            open_labelled(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_an_array_that_claims_more_than_is_stored(tmp_path):
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(sink, {"shape": (10**9, 28, 28), "fortran_order": False, "descr": "|u1"})
    packed(tmp_path / "a.npz", {"images.npy": sink.getvalue() + bytes(100)})
    (tmp_path / "a.npy").write_bytes(sink.getvalue() + bytes(100))
    for name in ("a.npz", "a.npy"):
        with pytest.raises(DatasetError, match=r"784\.0 GB by its header"):
            open_labelled(tmp_path / name)


def test_more_than_memory_holds(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.zeros((50, 40, 40), np.uint8))
    (tmp_path / "a.csv").write_text("text,label\n" + "word word word,1\n" * 5000)
    monkeypatch.setenv("NUSCOPE_MEMORY_LIMIT", "100000")
    settings.cache_clear()
    images = {f"{c}/{i}.png": picture((i, i, i), size=(60, 60)) for c in "ab" for i in range(5)}
    for path in (tmp_path / "a.npy", tmp_path / "a.csv", tree(tmp_path / "d", images)):
        with pytest.raises(UnsafeFileError, match="NUSCOPE_MEMORY_LIMIT"):
            open_labelled(path)
    assert len(open_labelled(tmp_path / "a.npy", limit=10)) == 10  # the file is mapped, not read whole


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.98])
@pytest.mark.parametrize("name", ["a.npz", "a.zip", "a.parquet", "a.npy"])
def test_cut_files(tmp_path, name, keep):
    save(tmp_path / "a.npz", GREYS, [0, 1, 0, 1])
    packed(tmp_path / "a.zip", PETS)
    pl.DataFrame({"text": [f"some words {i}" for i in range(200)], "label": [0, 1] * 100}).write_parquet(tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", GREYS)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(DatasetError):
        open_labelled(tmp_path / name)


def test_flipped_bytes_are_refused_or_read_never_a_fault_of_ours(tmp_path):
    save(tmp_path / "a.npz", GREYS, [0, 1, 0, 1])
    packed(tmp_path / "a.zip", PETS)
    pl.DataFrame({"text": [f"some words {i}" for i in range(50)], "label": [0, 1] * 25}).write_parquet(tmp_path / "a.parquet")
    rng = np.random.default_rng(0)
    for name in ("a.npz", "a.zip", "a.parquet"):
        whole = bytearray((tmp_path / name).read_bytes())
        for _ in range(80):
            broken = whole.copy()
            for place in rng.integers(0, len(broken), 3):
                broken[place] = int(rng.integers(256))
            (tmp_path / f"x-{name}").write_bytes(broken)
            with contextlib.suppress(DatasetError, UnsafeFileError):
                open_labelled(tmp_path / f"x-{name}")


def test_a_field_without_end(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,1\n" + "x" * 1_500_000 + ",0\n")
    with pytest.raises(DatasetError, match="1,500,000 characters in row 2"):
        open_labelled(tmp_path / "a.csv")
    (tmp_path / "open.csv").write_text('text,label\na,1\n"never closed,0\n' + "b,1\n" * 1000)
    with pytest.raises(DatasetError):
        open_labelled(tmp_path / "open.csv")


@pytest.mark.parametrize("column", ["text", "label"])
def test_nested_columns(tmp_path, column):
    values = {"text": ["a", "b"], "label": [0, 1], "extra": [{"k": 1}, {"k": 2}]}
    pl.DataFrame(values).write_parquet(tmp_path / "fine.parquet")
    assert len(open_labelled(tmp_path / "fine.parquet")) == 2
    pl.DataFrame(values | {column: [["a"], ["b"]]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match=rf"column '{column}' of type large_list"):
        open_labelled(tmp_path / "a.parquet")


def test_an_html_page_a_pickle_and_an_address(tmp_path):
    (tmp_path / "a.csv").write_text("<!DOCTYPE html><html>sign in</html>")
    (tmp_path / "a.npz").write_bytes(b"\x80\x04.")
    with pytest.raises(DatasetError, match="kind html"):
        open_labelled(tmp_path / "a.csv")
    with pytest.raises(DatasetError, match="kind pickle"):
        open_labelled(tmp_path / "a.npz")
    with pytest.raises(UnsafeFileError, match="address"):
        open_labelled("https://example.org/a.zip")


# --- beside gridded data ----------------------------------------------------------------------------------------------------------------


def test_gridded_and_labelled_readers_leave_each_other_alone(tmp_path, fields, written):
    with pytest.raises(DatasetError, match=r"kind hdf5.*images in a folder") as refused:
        open_labelled(written(fields()))
    assert "NetCDF" not in str(refused.value)
    (tmp_path / "a.csv").write_text("text,label\na,1\nb,0\n")
    for path in (tmp_path / "a.csv", tree(tmp_path / "pets", PETS), save(tmp_path / "2018_x.npz", GREYS, [0, 1, 0, 1])):
        with pytest.raises(DatasetError) as refused:
            open_dataset(path)
        assert "images" not in refused.value.expected
    with pytest.raises(DatasetError, match="a table of texts"):
        open_labelled(tmp_path / "pets", kind="text")
    with pytest.raises(SpecError, match="kind"):
        open_labelled(tmp_path / "pets", kind="table")


# --- what is shipped, and what others gave ----------------------------------------------------------------------------------------------


def test_the_demos_files():
    import hashlib

    folder = DEMO / "fashion"
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        expected, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected
    fit, calibrate, verify = (open_labelled(folder / f"{n}.npz") for n in ("fit", "calibrate", "verify"))
    for part, each in ((fit, 600), (calibrate, 150), (verify, 300)):
        assert part.inputs.shape == (10 * each, 28, 28, 1)
        assert np.bincount(part.labels).tolist() == [each] * 10
        assert len(set(part.labels[:40].tolist())) > 5  # in random order
    seen = [{image.tobytes() for image in part.inputs} for part in (fit, calibrate, verify)]
    assert not seen[0] & seen[1]
    assert len(seen[0] & seen[2]) <= 3  # Fashion-MNIST itself holds a few images twice
    outside = open_labelled(folder / "outside.npz", classes=fit.classes, outside=True)
    assert outside.inputs.shape == (500, 28, 28, 1)
    assert set(outside.labels.tolist()) == {-1}
    assert outside.inputs.max() > 200


@pytest.mark.skipif(not SHARED.exists(), reason="the shared test data are not here")
def test_sets_of_others():
    cifar = open_labelled(SHARED / "images/cifar10_test3k_jpeg.npz", limit=100)
    assert (cifar.inputs.shape, len(cifar.classes), np.bincount(cifar.labels).tolist()) == ((100, 32, 32, 3), 10, [10] * 10)
    reviews = open_labelled(SHARED / "text/movie_reviews.zip", limit=20)
    assert (reviews.classes, np.bincount(reviews.labels).tolist()) == (("neg", "pos"), [10, 10])
    lines = open_labelled(SHARED / "text/sentence_polarity.zip")
    assert (lines.classes, np.bincount(lines.labels).tolist()) == (("neg", "pos"), [5331, 5331])
    cola = SHARED / "text/acceptability_corpus/cola_public/raw"
    assert [len(open_labelled(cola / f"{n}.tsv")) for n in ("in_domain_train", "in_domain_dev", "out_of_domain_dev")] == [8551, 527, 516]


def test_an_empty_archive_and_a_file_that_is_no_image_are_called_so(tmp_path):
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(DatasetError, match="a zip archive with nothing in it"):
        open_labelled(tmp_path / "empty.zip")
    for name, content in (("a/1.png", picture()), ("b/1.png", b"no picture at all")):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True)
        (tmp_path / "pictures" / name).write_bytes(content)
    with pytest.raises(DatasetError, match=r"b/1\.png.*a broken image, or a file that is none") as refused:
        open_labelled(tmp_path / "pictures")
    assert "BytesIO" not in str(refused.value)


def test_black_images_are_black_in_every_range(tmp_path):
    assert not open_labelled(save(tmp_path / "a.npz", np.zeros_like(GREYS), [0, 1, 0, 1])).inputs.any()
