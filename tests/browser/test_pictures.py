"""A page is photographed only if it is that of its session, complains of nothing, and its picture is not too large."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.browser import pictures
from tests.browser.chromium import Chromium
from tests.browser.pictures import MADE, take

PAGE = '<!doctype html><meta charset="utf-8"><title>page</title><h2 class="verdict">1 broken, 1 certified</h2>'
NOISE = """<canvas width="1000" height="700"></canvas><script>
const pen = document.querySelector('canvas').getContext('2d'), dots = pen.createImageData(1000, 700);
for (let at = 0, last = 1; at < dots.data.length; at += 1) {
    last = (last * 48271) % 2147483647;
    dots.data[at] = last % 256;
}
pen.putImageData(dots, 0, 0);
</script>"""


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder that pictures are written to."""
    folder = tmp_path / "images"
    folder.mkdir()
    monkeypatch.setattr(pictures, "IMAGES", folder)
    return folder


@pytest.mark.full
def test_a_page_of_its_session_is_taken_at_each_size(chromium: Chromium, images: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    take(chromium, page, MADE["broken"])
    assert {picture.stem for picture in images.iterdir()} == set(MADE["broken"].shots)
    sizes = {picture.stem: picture.read_bytes()[16:24] for picture in images.iterdir()}
    assert sizes["viewer"] == b"".join(side.to_bytes(4) for side in pictures.WIDE)
    assert sizes["viewer-390"] == b"".join(side.to_bytes(4) for side in pictures.SMALL)


@pytest.mark.full
@pytest.mark.parametrize(("page", "name", "said"), [
    (None, "broken", "there is no page"),
    (PAGE, "green", "the page begins with '1 broken, 1 certified'"),
    (PAGE, "half", "the page begins with '1 broken, 1 certified'"),
    ("<!doctype html><p>1 broken", "broken", "the page begins with ''"),
    (f"{PAGE}<script>console.error('lost')</script>", "broken", "lost"),
    (f"{PAGE}{NOISE}", "broken", "and may have 150,000"),
])  # fmt: skip
def test_any_other_page_is_refused(
    chromium: Chromium, images: Path, tmp_path: Path, page: str | None, name: str, said: str
) -> None:
    path = tmp_path / "page.html"
    if page is not None:
        path.write_text(page)
    with pytest.raises(SystemExit, match=said):
        take(chromium, path, MADE[name])
