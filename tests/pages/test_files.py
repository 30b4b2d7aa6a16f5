"""The file routes: results and exported pictures, by name from lists only; and the headers on every answer."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

import engine
from engine.figures._export import to_csv
from engine.settings import settings
from pages._web.guard import POLICY, Guard

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "csv": b"nu,", "nc": b"\x89HDF"}


@pytest.fixture
def client(finished_run: str):
    from app import ROUTES

    with TestClient(Starlette(routes=ROUTES, middleware=[Middleware(Guard)])) as client:
        yield client


def test_the_verification_is_served_whole(client: TestClient, finished_run: str, home: Path) -> None:
    answer = client.get(f"/results/{finished_run}/verification.nc")
    assert answer.status_code == 200
    assert answer.content == (home / "runs" / finished_run / "verification.nc").read_bytes()
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("fake0123456789ab", "secret.txt"),
        ("fake0123456789ab", "..%2f..%2fruns.sqlite"),
        ("..", "runs.sqlite"),
        ("%2e%2e", "verification.nc"),
        ("nosuchrun", "verification.nc"),
    ],
)
def test_other_files_are_not_served(client: TestClient, home: Path, key: str, name: str) -> None:
    (home / "runs" / "fake0123456789ab" / "secret.txt").write_text("secret")
    (home / "verification.nc").write_text("secret")
    answer = client.get(f"/results/{key}/{name}")
    assert answer.status_code == 404 and b"secret\n" not in answer.content


@pytest.mark.parametrize("fmt", list(MAGIC))
def test_a_figure_is_exported(client: TestClient, finished_run: str, fmt: str) -> None:
    answer = client.get(f"/export/{finished_run}/pit_histogram.{fmt}?nu=8&region=tropics")
    assert answer.status_code == 200, answer.text
    assert answer.content.startswith(MAGIC[fmt])
    assert f'filename="nuscope_{finished_run}_pit_histogram_nu8.{fmt}"' in answer.headers["content-disposition"]


def test_an_exported_map_is_the_field_itself(client: TestClient, finished_run: str) -> None:
    answer = client.get(f"/export/{finished_run}/field_map.nc?which=width&nu=4&case=3&variable=geopotential_height_500&limits=0,300")
    with xr.open_dataset(io.BytesIO(answer.content), engine="h5netcdf") as got:
        assert got.attrs["key"] == finished_run and got.attrs["command"].startswith("python -m engine")
        width = got["width"].values
    with engine.open_fields(settings().runs / finished_run) as fields:
        q = fields["quantiles"].sel(nu=4, variable="geopotential_height_500").isel(lead_time=0, map_case=3)
        np.testing.assert_allclose(width, (q.sel(quantile=0.975) - q.sel(quantile=0.025)).values, rtol=1e-6)


@pytest.mark.parametrize(
    "path",
    [
        "pit_histogram.exe?nu=4",
        "no_such_figure.png",
        "pit_histogram.png?nu=5",
        "pit_histogram.png?nu=x",
        "pit_histogram.png?region=nowhere",
        "_style.png",
    ],
)
def test_a_wrong_request_is_refused_in_words(client: TestClient, finished_run: str, path: str) -> None:
    answer = client.get(f"/export/{finished_run}/{path}")
    assert answer.status_code == 404
    assert "Expected:" in answer.text and "Traceback" not in answer.text


def test_cells_that_a_spreadsheet_would_run_are_prefixed() -> None:
    text = to_csv(pd.DataFrame({"name": ["=1+1", "@x", "-2", "plain"], "value": [-1.5, 2, 3, 4]})).decode()
    assert text.splitlines()[1:] == ["'=1+1,-1.5", "'@x,2.0", "'-2,3.0", "plain,4.0"]


def test_every_answer_keeps_the_page_to_this_server(client: TestClient, finished_run: str) -> None:
    answer = client.get(f"/results/{finished_run}/nothing")
    policy = answer.headers["content-security-policy"]
    assert policy == POLICY.format(host="testserver")
    assert "http:" not in policy and "https:" not in policy and "*" not in policy
    assert answer.headers["x-frame-options"] == "DENY" and answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("query", [{"latitude": "nan"}, {"longitude": "inf"}, {"latitude": "999"}, {"limits": "0,inf"}])
def test_an_impossible_place_is_refused_not_answered_with_another(query) -> None:
    from engine.errors import RunError
    from pages._web.files import selection

    assert selection({"latitude": "52.5", "longitude": "11.25"}) == {"latitude": 52.5, "longitude": 11.25}
    with pytest.raises(RunError, match="finite numbers"):
        selection(query)
