"""Everybody can use the page: names, keys, and contrast as the browser computes it, in both themes (WCAG 2.2 AA)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.browser.looks import CONTRAST


@pytest.mark.full
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_shapes_and_borders_have_enough_contrast(opened: Callable[..., Any], shown: Any, dark: bool) -> None:
    page = opened(shown.html)
    page.dark(dark)
    for details in range(page.run("document.querySelectorAll('details').length")):
        page.run(f"document.querySelectorAll('details')[{details}].open = true")
    looked, found = page.run(CONTRAST)
    assert looked > 300
    assert found == []
    page.choose("#v-against", "nominal")  # the rows of a comparison
    assert page.run(CONTRAST)[1] == []
    page.click("#v-chips button")
    page.click("#v-help")
    assert page.run(CONTRAST)[1] == []


@pytest.mark.full
def test_the_check_of_contrast_sees_what_is_too_faint(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html)
    page.dark(False)
    page.run("document.querySelector('h1').style.color = '#9a9a9a'")
    assert [line[1] for line in page.run(CONTRAST)[1]] == ["H1"]


NAMED = {
    "button", "link", "textbox", "searchbox", "combobox", "checkbox", "listbox", "option", "img", "image", "dialog", "table",
    "region", "navigation", "complementary", "group", "heading", "figure", "menuitem",
}  # fmt: skip
MAY_BE_NAMELESS = {"figure", "group"}


def names(page: Any) -> list[tuple[str, str]]:
    """Role and name of everything that assistive technology can see."""
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored") and "role" in node
    ]


@pytest.mark.full
def test_everything_that_can_be_used_or_seen_has_a_name(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html, "#trace=0&with=none")
    page.wait("[...document.querySelectorAll('[role=option]')].some((one) => one.outerHTML.includes('violates refund.once'))")
    found = names(page)
    for link in page.run("[...document.querySelectorAll('.tabs a')].map((link) => link.hash)"):
        page.click(f".tabs a[href='{link}']")
        found += names(page)
    nameless = {role for role, name in found if role.lower() in NAMED and not name.strip()} - MAY_BE_NAMELESS
    assert nameless == set()
    roles = {role for role, _ in found}
    assert {"navigation", "main", "heading", "table", "columnheader", "listbox", "option", "searchbox", "complementary"} <= {
        role.lower() for role in roles
    }
    listed = [name for role, name in found if role.lower() == "option" and name.startswith("step ")]
    assert any("violates refund.once" in name for name in listed)
    assert any("fault service.lost_ack" in name for name in listed)


@pytest.mark.full
def test_plots_say_their_numbers_in_words(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html)
    plots = page.run(
        """[...document.querySelectorAll('svg.plot')].map((plot) => [
            plot.getAttribute('role'),
            document.getElementById(plot.getAttribute('aria-labelledby')).textContent,
            document.getElementById(plot.getAttribute('aria-describedby')).textContent,
        ])"""
    )
    assert len(plots) >= 6
    for role, title, said in plots:
        assert role == "img"
        assert title
        assert any(character.isdigit() for character in said), said
    ids = page.run("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.full
def test_headings_descend_one_by_one_and_the_page_names_its_language(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html)
    levels = page.run("[...document.querySelectorAll('h1, h2, h3, h4')].map((node) => Number(node.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.run("[document.documentElement.lang, document.title]") == ["en", "MAT report"]


@pytest.mark.full
def test_tab_reaches_every_control_in_the_order_in_which_it_stands_and_shows_where_one_is(
    opened: Callable[..., Any], shown: Any
) -> None:
    page = opened(shown.html, "#traces")
    page.run("document.getElementById('v-trace').focus()")
    visited = ["v-trace"]
    while visited[-1] != "v-list" and len(visited) < 40:
        page.press("Tab")
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
        visited.append(page.run("document.activeElement.id || document.activeElement.textContent"))
    controls = ["v-trace", "v-against", "v-axis", "v-help", "v-agent", "v-kind", "v-find", "v-clear"]
    assert [name for name in visited if name in controls] == controls
    assert any(name.startswith("Violations") for name in visited)
    page.press("Tab")
    assert page.run("document.activeElement.closest('#v-step') !== null || document.activeElement === document.body")


@pytest.mark.full
def test_the_list_tells_which_row_of_how_many_is_chosen(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html, "#traces")
    page.click("#row-1")
    row = "document.getElementById(document.getElementById('v-list').getAttribute('aria-activedescendant'))"
    assert page.run(f"[{row}.ariaPosInSet, {row}.ariaSelected, {row}.getAttribute('role')]") == ["2", "true", "option"]
    assert int(page.run(f"{row}.ariaSetSize")) == page.run("document.querySelectorAll('#v-rows > .row').length")
