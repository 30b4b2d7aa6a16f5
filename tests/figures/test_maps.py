"""Maps as data: no seam, no false coast, true colours, and clicks that come back as the cell."""

import time

import numpy as np
import pytest

from engine.errors import SpecError
from engine.figures import _geo, _map_data
from engine.figures._style import diverging, mix
from engine.figures.field_map import shared_range
from engine.registry import get

MAP = get("figures", "field_map")


def paint(page):
    """Pixels of a page, without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(page)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(int)


def heatmap(figure):
    return next(t for t in figure.data if t.type == "heatmap")


def test_coastlines_have_no_false_stripes():
    lon, lat = _geo.coastlines()
    assert 3000 < len(lon) < 10_000
    assert np.nanmax(np.abs(np.diff(lon))) < 15, "no segment across the map"
    edge = np.abs(np.abs(lon) - 180) < 1e-3
    assert not (edge[:-1] & edge[1:]).any(), "no segment along the dateline"
    assert np.nanmin(lat) > -89.9
    assert np.array_equal(np.isnan(lon), np.isnan(lat))
    for projection in _geo.PROJECTIONS.values():
        x, y = projection.forward(lon.astype(float), lat.astype(float))
        step = np.hypot(np.diff(x), np.diff(y))
        assert np.nanmax(step) < 0.13 * projection.extent[0], projection.key


def test_the_recipe_cuts_what_is_no_coast():
    from engine.demo.coastlines import decode_arcs, polyline

    topology = {
        "transform": {"scale": [1, 1], "translate": [0, 0]},
        "arcs": [[[170, 10], [5, 0], [-350, 0], [5, 5]], [[180, 0], [0, -5], [-5, 0]]],
    }
    arcs = decode_arcs(topology)
    np.testing.assert_array_equal(arcs[0], [[170, 10], [175, 10], [-175, 10], [-170, 15]])
    line = polyline(arcs)
    nan = np.nan
    np.testing.assert_array_equal(
        line, np.array([[170, 10], [175, 10], [nan, nan], [-175, 10], [-170, 15], [nan, nan], [180, -5], [175, -5]], np.float32)
    )


@pytest.mark.parametrize("first", [0.0, 2.8125, -180.0, 10.0])
def test_a_global_map_fills_every_column_once(first):
    lon = first + np.arange(64) * 360 / 64
    field = np.broadcast_to(np.cos(np.deg2rad(lon)), (8, 64))
    x, y, z = _geo.columns_to_draw(field, np.linspace(78, -78, 8), lon)
    assert x[0] == -180
    assert x[-1] == 180
    assert (np.diff(x) > 0).all()
    assert np.diff(x).max() < 360 / 64 + 1e-9, "no wide cell, no gap"
    assert z.shape == (8, len(x) - 1)
    middle = (x[1:] + x[:-1]) / 2
    assert np.abs(z[0] - np.cos(np.deg2rad(middle))).max() < 0.06, "each cell lies where its longitude is"
    assert (y.min(), y.max()) == pytest.approx((-90, 90), abs=2)


@pytest.mark.parametrize("key", ["robinson", "north_polar", "south_polar", "equirectangular"])
def test_projections_invert_and_leave_no_gap_at_the_seam(key):
    projection = _geo.PROJECTIONS[key]
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(-179.9, 179.9, 500), rng.uniform(-89, 89, 500)
    x, y = projection.forward(lon, lat)
    seen = np.isfinite(x)
    assert seen.sum() > 200
    back_lon, back_lat = projection.inverse(x[seen], y[seen])
    np.testing.assert_allclose(back_lat, lat[seen], atol=1e-6)
    np.testing.assert_allclose((back_lon - lon[seen] + 180) % 360 - 180, 0, atol=1e-5)
    grid = np.arange(64) * 360 / 64
    field = np.broadcast_to(np.sin(np.deg2rad(grid)), (32, 64))
    px, py, z = _geo.raster(field, np.linspace(87, -87, 32), grid, projection, 240)
    lon_at, lat_at = projection.inverse(*np.meshgrid(px, py))
    inside = np.isfinite(lon_at) & np.isfinite(lat_at)
    assert np.isfinite(z[inside]).all(), "every pixel of the map has a colour"
    assert np.isnan(z[~inside]).all()
    assert np.abs(z[inside] - np.sin(np.deg2rad(lon_at[inside]))).max() < 0.06, "no stripe anywhere, the dateline included"
    assert z.dtype == np.float32


def test_robinson_is_that_of_cartopy():
    ccrs = pytest.importorskip("cartopy.crs")
    lon, lat = np.array([-150.0, 0, 60, 179]), np.array([-65.0, 20, 45, 82])
    expected = ccrs.Robinson().transform_points(ccrs.PlateCarree(), lon, lat)
    x, y = _geo.PROJECTIONS["robinson"].forward(lon, lat)
    # linear between the table's 5° rows, where cartopy interpolates by cubics: a few kilometres on the globe
    np.testing.assert_allclose(np.stack([x, y], 1) * 6378137, expected[:, :2], atol=2.5e4)


def test_screen_raster_equals_the_field_and_the_click_gives_the_cell(verification):
    figure, data = MAP.screen(verification, which="rmse", nu=4), MAP.data(verification, which="rmse", nu=4)
    drawn = heatmap(figure)
    assert drawn.z.dtype == np.float32
    assert np.isfinite(drawn.z).all()
    x, y = np.asarray(drawn.x), np.asarray(drawn.y)
    cells = next(t for t in figure.data if t.name == "cells")
    assert len(cells.customdata) == 32 * 64
    for lat, lon, value, _ in cells.customdata[::97]:
        assert float(data["rmse"].sel(latitude=lat, longitude=lon, method="nearest")) == pytest.approx(value, rel=1e-3)
        column = np.searchsorted(x, (lon + 180) % 360 - 180, side="right") - 1
        row = np.flatnonzero((np.minimum(y[:-1], y[1:]) < lat) & (lat < np.maximum(y[:-1], y[1:])))[0]
        assert drawn.z[row, column] == pytest.approx(value, rel=1e-3)
    assert figure.layout.clickmode == "event+select"
    assert figure.layout.yaxis.scaleanchor == "x"


def test_the_marked_cell_is_the_one_asked_for(verification):
    figure = MAP.screen(verification, which="rmse", latitude=50, longitude=350)
    ring = next(t for t in figure.data if t.name == "marked")
    assert ring.x[0] == pytest.approx(-10, abs=3)
    assert ring.y[0] == pytest.approx(50, abs=3)


@pytest.mark.parametrize("which", sorted(MAP.kinds))
def test_every_kind_draws_in_every_projection(which, verification, fields):
    for projection in MAP.projections:
        figure = MAP.screen(verification, which=which, fields=fields, projection=projection, dark=True)
        drawn = heatmap(figure)
        assert drawn.zmin < drawn.zmax
        assert len(figure.to_json()) < 3_000_000
    assert "M = 20" in MAP.describe(verification, which=which, fields=fields)


OVER_ALL = {"coverage": "coverage_map", "bias": "bias_map", "rmse": "rmse_map", "spread": "spread_map", "mean_width": "width_map"}
OVER_ALL |= {"valid": "valid_map"}


def northward(verification, fields, ascending):
    """Every map of both files is larger in the north by hemisphere and latitude, and a little in the east; rows either way up."""
    marked = []
    for dataset in (verification, fields):
        dataset = dataset.sortby("latitude", ascending=ascending)
        mark = 0.5 + dataset["latitude"] / 200 + np.sin(np.deg2rad(dataset["longitude"])) / 50
        marked.append(
            dataset.assign({n: (mark + dataset[n] * 0).transpose(*dataset[n].dims) for n in dataset if {*mark.dims} <= {*dataset[n].dims}})
        )
    return mark, *marked


def test_every_map_over_all_cases_has_a_test_here():
    assert OVER_ALL.keys() == {key for key, kind in _map_data.KINDS.items() if not kind.single}


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("which", sorted(MAP.kinds))
def test_north_stays_north(which, ascending, verification, fields):
    """The number at a place is that place's own; on the screen and on the page, in each projection, it is drawn there."""
    mark, ours, single = northward(verification, fields, ascending)
    data = MAP.data(ours, which=which, fields=single)[which]
    flat = which in ("width", "error")  # differences of two equal fields
    wanted = mark * 0 if flat else mark
    for lat, lon in ((70, 10), (-70, 10), (40, 90), (40, 270), (-30, 180)):
        at = {"latitude": lat, "longitude": lon, "method": "nearest"}
        assert float(data.sel(**at)) == pytest.approx(float(wanted.sel(**at)), abs=1e-6)
    if flat:
        return
    for key, projection in _geo.PROJECTIONS.items():
        drawn = heatmap(MAP.screen(ours, which=which, fields=single, projection=key))
        x, y = (np.asarray(ends, float) for ends in (drawn.x, drawn.y))
        x, y = ((c[1:] + c[:-1]) / 2 if len(c) > n else c for c, n in zip((x, y), drawn.z.shape[::-1], strict=True))
        lon, lat = projection.inverse(*np.meshgrid(x, y))
        seen = np.isfinite(lon) & np.isfinite(lat) & np.isfinite(drawn.z)
        expected = 0.5 + lat / 200 + np.sin(np.deg2rad(lon)) / 50
        assert seen.mean() > 0.4
        assert np.abs(drawn.z - expected)[seen].max() < 0.02, key  # half a cell is 0.014


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize(
    ("which", "projection"), [("rmse", "robinson"), ("bias", "equirectangular"), ("coverage", "robinson"), ("observed", "robinson")]
)
def test_north_is_up_on_the_page(which, projection, ascending, verification, fields):
    """Pixels along a meridian without coasts take the colours of the scale from its low end in the south to its high end in the north."""
    _, ours, single = northward(verification, fields, ascending)
    page = MAP.page(ours, which=which, fields=single, projection=projection, limits=(0.0, 1.0))
    pixels, box = paint(page), page.axes[0].get_window_extent()
    bar = page.axes[1].get_window_extent()
    high, low = (pixels[int(pixels.shape[0] - y), int((bar.x0 + bar.x1) / 2)] for y in (bar.y1 - 8, bar.y0 + 8))
    column = int((box.x0 + box.x1) / 2 - 0.07 * (box.x1 - box.x0))  # the Atlantic
    rows = [int(pixels.shape[0] - (box.y0 + box.y1) / 2 - share * (box.y1 - box.y0)) for share in (0.28, -0.28)]
    north, south = (pixels[row, column] for row in rows)
    assert np.abs(north - high).sum() < np.abs(north - low).sum()
    assert np.abs(south - low).sum() < np.abs(south - high).sum()


def test_single_case_maps_read_that_case(verification, fields):
    at = {"lead_time": 0, "variable": 0, "map_case": 7}
    observed = fields["observed"].isel(at).values
    np.testing.assert_allclose(MAP.data(verification, which="observed", fields=fields, case=7)["observed"], observed)
    error = fields["mean"].sel(nu=8).isel(at).values - observed
    np.testing.assert_allclose(MAP.data(verification, which="error", fields=fields, nu=8, case=7)["error"], error, rtol=1e-4, atol=1e-2)
    by_time = MAP.data(verification, which="width", fields=fields, nu=8, case=str(fields["init_time"].values[7]))
    quantiles = fields["quantiles"].sel(nu=8).isel(at)
    np.testing.assert_allclose(by_time["width"], quantiles.sel(quantile=0.975) - quantiles.sel(quantile=0.025), rtol=1e-4, atol=1e-2)
    assert by_time.attrs["init_time"] == "0012-02-08T00:00:00"
    with pytest.raises(SpecError, match=r"fields\.nc"):
        MAP.data(verification, which="observed")
    with pytest.raises(SpecError, match="0 … 39"):
        MAP.data(verification, which="observed", fields=fields, case=40)


def test_colours_are_centred_and_shared(verification, fields):
    bias = heatmap(MAP.screen(verification, which="bias"))
    assert bias.zmin == pytest.approx(-bias.zmax)
    middle = bias.colorscale[len(bias.colorscale) // 2][1]
    assert middle == "#ece5e0", "white at zero"
    coverage = heatmap(MAP.screen(verification, which="coverage", nu=32))
    place = (verification.attrs["nominal_95"] - coverage.zmin) / (coverage.zmax - coverage.zmin)
    assert coverage.zmax == 1
    scale = [c for _, c in coverage.colorscale]
    assert sum(abs(int(mix(scale, place)[i : i + 2], 16) - int("ece5e0"[i - 1 : i + 1], 16)) for i in (1, 3, 5)) < 40, (
        "white at perfect coverage"
    )
    one, two = (MAP.data(verification, which="rmse", nu=n) for n in (1, 64))
    limits = shared_range(one, two)
    drawn = [heatmap(MAP.screen(verification, which="rmse", nu=n, limits=limits)) for n in (1, 64)]
    assert {(d.zmin, d.zmax) for d in drawn} == {limits}
    assert limits == (
        pytest.approx(min(float(one["rmse"].min()), float(two["rmse"].min()))),
        pytest.approx(max(float(one["rmse"].max()), float(two["rmse"].max()))),
    )
    assert shared_range(np.array([1.0, np.nan, -3.0]), centre=0.0) == (-3.0, 3.0)
    assert shared_range(np.full(3, np.nan)) == (0.0, 1.0)
    assert diverging(-1, 1, 0)[16] == "#ece5e0"


def big(verification, rows=721, columns=1440):
    lat, lon = np.linspace(90, -90, rows), np.arange(columns) * 360 / columns
    value = np.cos(np.deg2rad(lat))[:, None] * np.cos(np.deg2rad(lon))[None]
    small = verification.drop_dims(["latitude", "longitude"])
    maps = np.broadcast_to(value, (8, 1, 2, rows, columns))
    return small.assign(rmse_map=(("nu", "lead_time", "variable", "latitude", "longitude"), maps)).assign_coords(
        latitude=lat, longitude=lon
    )


def test_large_grids_are_thinned_and_stay_global(verification):
    figure = MAP.screen(big(verification), which="rmse")
    drawn = heatmap(figure)
    assert drawn.z.size <= 205_000
    assert (drawn.x[0], drawn.x[-1]) == (-180, 180)
    assert len(figure.to_json()) < 2_500_000
    assert "one cell in 9 drawn" in figure.layout.annotations[0].text.replace("<br>", " ")


def test_a_regional_map_stays_together_across_the_dateline(verification):
    part = verification.sel(longitude=slice(150, 210), latitude=slice(40, -40))
    figure = MAP.screen(part, which="rmse")
    drawn = heatmap(figure)
    assert drawn.x[-1] - drawn.x[0] < 70
    cells = next(t for t in figure.data if t.name == "cells")
    assert min(cells.x) > drawn.x[0]
    assert max(cells.x) < drawn.x[-1]
    coast = next(t for t in figure.data if t.name == "coast")
    inside = (np.asarray(coast.x) > drawn.x[0]) & (np.asarray(coast.x) < drawn.x[-1])
    assert inside.sum() > 50, "New Zealand and the islands beyond the dateline"
    robinson = heatmap(MAP.screen(part, which="rmse", projection="robinson"))
    assert 0.02 < np.isfinite(robinson.z).mean() < 0.3


def test_missing_cells_are_said(verification):
    holes = verification.copy()
    holes["rmse_map"] = holes["rmse_map"].where(holes["latitude"] < 60)
    figure = MAP.screen(holes, which="rmse")
    assert np.isnan(heatmap(figure).z).any()
    assert "grey: no data" in figure.layout.annotations[0].text.replace("<br>", " ")
    assert "100% of cells" not in MAP.describe(holes, which="rmse")


def test_words_of_a_map_are_its_numbers(verification):
    data = MAP.data(verification, which="coverage", nu=32)
    weight = np.cos(np.deg2rad(data["latitude"].values))[:, None] * np.ones(64)
    mean = float((data["coverage"].values * weight).sum() / weight.sum())
    assert f"area mean {100 * mean:.0f}%" in MAP.describe(verification, which="coverage", nu=32)
    assert f"held {100 * mean:.0f}% of the observations" in MAP.screen(verification, which="coverage", nu=32).layout.title.text.replace(
        "<br>", " "
    )


def test_page_has_no_seam_and_is_quick(verification):
    flat = verification.copy()
    flat["rmse_map"] = flat["rmse_map"] * 0 + 1
    page = MAP.page(flat, which="rmse", limits=(0.0, 2.0))
    started = time.process_time()
    pixels = paint(page)
    assert time.process_time() - started < 5, "a cell on the seam would take six seconds"
    box = page.axes[0].get_window_extent()
    height = pixels.shape[0]
    rows = slice(int(height - box.y1) + 3, int(height - box.y0) - 3)
    middle = pixels[rows, int(box.x0) + 3 : int(box.x1) - 3]
    line = middle[middle.shape[0] // 2]
    colour = np.array([0x82, 0x82, 0x31])
    share = (np.abs(line - colour).sum(-1) < 12).mean()
    assert share > 0.9, "one colour from rim to rim, coasts apart"


@pytest.mark.parametrize("projection", ["north_polar", "south_polar", "equirectangular"])
def test_pages_in_other_projections(projection, verification):
    page = MAP.page(verification, which="bias", projection=projection, dark=True)
    assert paint(page).std() > 20


def test_place_and_nearest_take_any_longitude():
    assert _geo.place(-33.9, 350.25) == "33.9°S 9.8°W"
    lat, lon = np.linspace(80, -80, 17), np.arange(36) * 10.0
    for wanted in (-3.0, 357.0, 717.0, 4.9):
        row, column = _geo.nearest(lat, lon, np.asarray(42.0), np.asarray(wanted))
        assert (lat[row], lon[column]) == (40, 0)
    shifted = lon - 180
    _, column = _geo.nearest(lat, shifted, np.asarray(0.0), np.asarray(190.0))
    assert shifted[column] == -170


def test_kinds_say_which_need_fields():
    assert MAP.single == {"observed", "mean", "deterministic", "lower", "upper", "width", "error"}
    assert set(_map_data.KINDS) == set(MAP.kinds)
