"""A real Chromium against a server started from cold: deep link, curve, map, export, upload; and nothing leaves the machine."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from engine.settings import DEMO

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PATIENCE = 60_000
"""Milliseconds for one step: two cores may be busy with other things."""
pytestmark = [pytest.mark.browser, pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="no Chromium at /usr/bin/chromium")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def server(home: Path) -> Iterator[str]:
    """The app on a free port with this test's home; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (home / "app.log").open("wb")
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port), "--server.address", "127.0.0.1"]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"NUSCOPE_HOME": str(home)}, stdout=log, stderr=log)
    try:
        wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)
        log.close()


def wait_for(port: int, process: subprocess.Popen) -> None:
    """Until the port answers."""
    for _ in range(300):
        assert process.poll() is None, "the server ended at once"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the server did not start")


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    """A page that records what it asks for and what its console says; both are judged at the end."""
    context = browser.new_context(viewport={"width": 1440, "height": 1100}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket_: asked.append(socket_.url))
    page.on(
        "console", lambda message: said.append(f"{message.text} {message.location.get('url', '')}") if message.type == "error" else None
    )
    page.on("pageerror", lambda fault: said.append(str(fault)))
    yield page
    context.close()
    place = urlsplit(server).netloc
    outside = [url for url in asked if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != place]
    assert len(asked) > 10 and outside == []
    # On a deep link Streamlit first asks beneath the page's own path, and is told 404 before it finds its base path.
    ours = [text for text in said if "/_stcore/" not in text]
    assert ours == []


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def until_nu(page: Page, nu: int) -> None:
    """Until the address says this ν."""
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get("nu") == [str(nu)])


def drawn(page: Page, name: str) -> None:
    """Until a chart is there, with its data."""
    page.wait_for_selector(f".st-key-chart_{name} .main-svg")
    page.wait_for_function("name => !!document.querySelector(`.st-key-chart_${name} .js-plotly-plot`)?._fullLayout?.xaxis?.d2p", arg=name)


def place_of(page: Page, name: str, which: int) -> tuple[float, float, int]:
    """(x, y, ν) of a point of a figure over ν, by number."""
    x, y, nu = page.evaluate(
        """([name, i]) => {
            const plot = document.querySelector(`.st-key-chart_${name} .js-plotly-plot`);
            const box = plot.getBoundingClientRect();
            const trace = plot._fullData.find(t => t.customdata), {xaxis, yaxis} = plot._fullLayout;
            const x = box.left + xaxis._offset + xaxis.d2p(trace.x[i]), y = box.top + yaxis._offset + yaxis.d2p(trace.y[i]);
            return [x, y, trace.customdata[i][0]];
        }""",
        [name, which],
    )
    return x, y, int(nu)


def click_curve(page: Page, name: str, which: int) -> int:
    """Click a point of a figure over ν, by number; returns its ν."""
    drawn(page, name)
    page.locator(f".st-key-chart_{name}").scroll_into_view_if_needed()
    x, y, nu = place_of(page, name, which)
    page.mouse.move(x, y, steps=4)
    page.wait_for_timeout(400)  # plotly takes what was last hovered as what is clicked, and hovers on a timer
    page.mouse.click(x, y)
    return nu


def heat(page: Page, name: str) -> str:
    """What a map shows: its message and its values."""
    drawn(page, name)
    return page.evaluate(
        "name => { const p = document.querySelector(`.st-key-chart_${name} .js-plotly-plot`);"
        " return JSON.stringify([p.layout.meta.title, p.data.find(t => t.type === 'heatmap').zmax]); }",
        name,
    )


def test_deep_link_from_cold_then_curve_map_and_export(page: Page, server: str, finished_run: str, tmp_path: Path) -> None:
    page.goto(f"{server}/maps?run={finished_run}&nu=8")
    page.wait_for_selector("h1:has-text('Maps')")
    first = heat(page, "map_width")
    assert {"run": [finished_run], "nu": ["8"]}.items() <= query(page).items()
    assert "Maps" in page.title()

    page.get_by_role("link", name="Choose ν").click()
    page.wait_for_selector("h1:has-text('Choose ν')")
    nu = click_curve(page, "trade_off", 0)
    assert nu == 1
    until_nu(page, 1)

    page.get_by_role("link", name="Maps").click()
    page.wait_for_selector("h1:has-text('Maps')")
    assert {"run": [finished_run], "nu": ["1"]}.items() <= query(page).items(), "run and ν are handed on to the next page"
    page.wait_for_function("() => document.querySelector('.st-key-figure_map_width')?.innerText.includes('ν = 1')")
    assert heat(page, "map_width") != first, "the map shows the chosen ν"

    page.locator(".st-key-beneath_map_width").get_by_text("Export").click()
    with page.expect_download() as download:
        page.get_by_text("PNG picture").click()
    assert download.value.suggested_filename == f"nuscope_{finished_run}_field_map_width_nu1.png"
    download.value.save_as(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_click_on_a_map_opens_that_place(page: Page, server: str, finished_run: str) -> None:
    page.goto(f"{server}/maps?run={finished_run}&nu=4")
    drawn(page, "map_observed")
    drawn(page, "cell_series")
    before = page.locator(".st-key-figure_cell_series").inner_text()
    x, y = page.evaluate(
        """() => { const p = document.querySelector('.st-key-chart_map_observed .js-plotly-plot');
            const b = p.getBoundingClientRect(), {xaxis, yaxis} = p._fullLayout;
            return [b.left + xaxis._offset + xaxis.d2p(-56.2), b.top + yaxis._offset + yaxis.d2p(-19.7)]; }"""
    )
    page.mouse.move(x, y, steps=4)
    page.wait_for_timeout(400)
    page.mouse.click(x, y)
    page.wait_for_function("() => document.querySelector('.st-key-figure_cell_series')?.innerText.includes('19.7°S')")
    assert page.locator(".st-key-figure_cell_series").inner_text() != before


def lines_drawn(page: Page, name: str) -> tuple[int, int]:
    """(reference lines that a chart has, those that the browser drew): some layers of a shape are not drawn by every plotly.js."""
    drawn(page, name)
    return tuple(
        page.evaluate(
            "name => { const p = document.querySelector(`.st-key-chart_${name} .js-plotly-plot`);"
            " return [(p.layout.shapes || []).length, p.querySelectorAll('.shapelayer path, .shapelayer-below path').length]; }",
            name,
        )
    )


def test_a_calibration_shows_where_its_lines_meet(page: Page, server: str, new_calibration) -> None:
    page.goto(f"{server}/calibrate?run={new_calibration()}")
    page.wait_for_selector("h1:has-text('Calibrate')")
    for figure in ("scale_fit", "calibration_audit"):
        wanted, found = lines_drawn(page, figure)
        assert 0 < wanted <= found, figure
    assert "ν* = " in page.locator("body").inner_text()


def test_reference_lines_are_drawn(page: Page, server: str, finished_run: str) -> None:
    page.goto(f"{server}/sweep?run={finished_run}&nu=8")
    wanted, found = lines_drawn(page, "coverage_over_nu")
    assert 0 < wanted <= found


def test_a_file_goes_up_in_pieces_and_is_kept(page: Page, server: str, home: Path, tmp_path: Path) -> None:
    content = os.urandom(20_000_000)
    (tmp_path / "model.safetensors").write_bytes(content)
    page.goto(f"{server}/bring")
    pieces: list[str] = []
    page.on("request", lambda request: pieces.append(request.method) if "/upload/" in request.url else None)
    page.locator(".st-key-bring_checkpoint input[type=file]").set_input_files(tmp_path / "model.safetensors")
    page.wait_for_selector(".st-key-bring_checkpoint >> text=model.safetensors · 20.0 MB")
    assert pieces.count("PUT") == 3
    kept = list((home / "uploads").glob("*/model.safetensors"))
    assert len(kept) == 1 and kept[0].read_bytes() == content
    page.get_by_role("link", name="Runs").click()
    page.wait_for_selector("h1:has-text('Runs')")
    page.get_by_role("link", name="Bring your own").click()
    page.wait_for_selector(".st-key-bring_checkpoint >> text=model.safetensors · 20.0 MB")


@pytest.mark.skipif(not (DEMO / "verify.nc").exists(), reason="assets/demo is not part of this copy")
def test_a_stranger_runs_the_demo_and_follows_it_to_a_map(page: Page, server: str, tmp_path: Path) -> None:
    page.goto(server)
    page.wait_for_selector("h1:has-text('How far can you believe this forecast?')")
    page.get_by_role("button", name="Run the demo").click()
    page.wait_for_selector("[data-testid=stProgress]")
    page.reload()  # the run is the server's, not the page's
    page.set_default_timeout(420_000)
    page.wait_for_selector("p.nu-headline")
    drawn(page, "start_trade_off")
    page.set_default_timeout(PATIENCE)
    page.get_by_role("button", name="Choose ν").click()
    page.wait_for_selector("h1:has-text('Choose ν')")
    nu = click_curve(page, "trade_off", 0)
    until_nu(page, nu)
    page.get_by_role("link", name="Maps").click()
    page.wait_for_function("nu => document.querySelector('.st-key-figure_map_width')?.innerText.includes(`ν = ${nu}`)", arg=nu)
    page.locator(".st-key-beneath_map_width").get_by_text("Export").click()
    with page.expect_download() as download:
        page.get_by_text("PNG picture").click()
    download.value.save_as(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.fixture
def touched(browser: Browser, server: str) -> Iterator[Page]:
    """A page under a finger."""
    context = browser.new_context(viewport={"width": 1000, "height": 1100}, has_touch=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    context.close()


def test_a_tap_picks_the_point_that_it_touches(touched: Page, server: str, finished_run: str) -> None:
    """Plotly selects what was last hovered, and a finger does not hover: each tap would pick the point tapped before."""
    touched.goto(f"{server}/sweep?run={finished_run}&nu=4")
    for which in (0, 7, 2):
        drawn(touched, "trade_off")
        # while the page is drawn anew, the former chart stands beside the new one
        touched.wait_for_function("document.querySelectorAll('.st-key-chart_trade_off').length === 1")
        touched.locator(".st-key-chart_trade_off").scroll_into_view_if_needed()
        x, y, nu = place_of(touched, "trade_off", which)
        touched.touchscreen.tap(x, y)
        until_nu(touched, nu)
        touched.wait_for_timeout(1500)  # a tap while the page is drawn anew would find no chart


def test_compared_maps_stand_side_by_side(page: Page, server: str, finished_run: str) -> None:
    page.goto(f"{server}/maps?run={finished_run}&nu=4")
    drawn(page, "map_error")
    page.locator(".st-key-map_second input").click()
    page.get_by_role("option", name="ν = 64", exact=True).click()
    for name in ("mean", "width", "error"):
        drawn(page, f"map_{name}")
        drawn(page, f"map_{name}_second")
        one, other = (page.locator(f".st-key-figure_map_{name}{end}").bounding_box() for end in ("", "_second"))
        assert one and other and abs(one["y"] - other["y"]) < 2 and one["x"] + one["width"] <= other["x"], name
