"""A real Chromium on the pages of a classification: deep link, another method, a mistake opened, DIRECTOR; nothing leaves the machine."""

import importlib.util
import sys
from pathlib import Path

from playwright.sync_api import Page


def shared():
    """The fixtures of the other browser tests; by path, since some installed packages bring a package `tests` of their own."""
    name = "browser_shared"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("test_browser.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


browser, server, page = (getattr(shared(), name) for name in ("browser", "server", "page"))
pytestmark = shared().pytestmark


def test_a_method_is_chosen_a_mistake_is_opened_and_director_is_reached(page: Page, server: str, new_classification) -> None:
    drawn, query = shared().drawn, shared().query
    key = new_classification()
    page.goto(f"{server}/classify?run={key}&entry=temperature_scaling")
    page.wait_for_selector("h1:has-text('Does it know when it is wrong?')")
    assert "the frozen model gets" in page.locator("p.nu-headline").inner_text()
    page.wait_for_selector("table.nu-scores tr.nu-chosen:has-text('Temperature scaling')")
    drawn(page, "class_reliability")

    page.locator("[class*='st-key-look_'] button").first.click()
    drawn(page, "example_paths")
    title = page.locator(".st-key-figure_example_paths h3").inner_text()
    assert "but it is" in title
    page.locator(".st-key-beneath_example_paths").get_by_text("Export").click()
    with page.expect_download() as download:
        page.get_by_text("CSV table").click()
    assert "example_paths" in download.value.suggested_filename

    page.get_by_role("link", name="DIRECTOR").click()
    page.wait_for_selector("h1:has-text('DIRECTOR')")
    drawn(page, "path_controls")
    assert query(page)["run"] == [key]
