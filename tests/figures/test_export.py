"""Files of a figure: readable again, with their origin inside, and harmless in a spreadsheet."""

import io

import pandas as pd
import xarray as xr
from PIL import Image

from engine.figures import _export
from engine.registry import get


def test_pictures_carry_title_command_and_key(verification):
    figure = get("figures", "pit_ecdf")
    page, source = figure.page(verification), _export.origin(verification, figure.title)
    image = Image.open(io.BytesIO(_export.to_png(page, source)))
    assert image.size[0] > 1000
    assert image.text["Title"] == figure.title
    assert image.text["Description"] == verification.attrs["command"]
    assert verification.attrs["key"] in image.text["Source"]
    svg = _export.to_svg(page, source).decode()
    assert figure.title in svg
    assert verification.attrs["key"] in svg
    assert svg.count("<image") == 0, "charts are vectors"


def test_csv_cells_are_no_formulas_and_numbers_stay_numbers():
    table = pd.DataFrame({"name": ["=cmd()", "+1", "-x", "@y", "plain"], "value": [-1.5, 2, 3, 4, 5]})
    back = pd.read_csv(io.BytesIO(_export.to_csv(table)))
    assert back["name"].tolist() == ["'=cmd()", "'+1", "'-x", "'@y", "plain"]
    assert back["value"].tolist() == [-1.5, 2, 3, 4, 5]
    assert table["name"][0] == "=cmd()", "the table itself is left alone"


def test_csv_of_a_map_has_a_row_per_cell(verification):
    back = pd.read_csv(io.BytesIO(_export.to_csv(get("figures", "field_map").data(verification, which="rmse"))))
    assert len(back) == 32 * 64
    assert {"latitude", "longitude", "rmse"} <= set(back.columns)


def test_netcdf_reads_back_with_origin(verification, tmp_path):
    for key in ("trade_off", "field_map"):
        path = tmp_path / f"{key}.nc"
        path.write_bytes(_export.to_netcdf(get("figures", key).data(verification), _export.origin(verification, key)))
        with xr.open_dataset(path, engine="h5netcdf") as back:
            assert back.attrs["key"] == verification.attrs["key"]
            assert back.attrs["command"].startswith("python -m engine sweep")
            assert len(back.data_vars) >= 1
