"""The picture in the README: the player of the demo's report, as a browser shows it.

    anyorder demo && python recipes/player_image.py

Needs chromium and playwright (extra `dev`).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
SIZE = {"width": 1340, "height": 1600}
"""So high that the controls stand below the samples, and do not float over them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, default=Path("runs/demo/report.html"))
    parser.add_argument("--out", type=Path, default=Path("docs/images/player.png"))
    chosen = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        parser.error("no chromium: apt-get install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=list(FLAGS))
        page = browser.new_page(viewport=SIZE, color_scheme="light", offline=True)
        page.goto(chosen.report.resolve().as_uri())
        player = page.locator("#player")
        player.locator(".ao-player").wait_for()
        player.screenshot(path=chosen.out, animations="disabled")
        browser.close()
    print(chosen.out)


if __name__ == "__main__":
    main()
