"""Everybody can use the page: names, keys, and contrast as the browser computes it, in both themes (WCAG 2.2 AA)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

CONTRAST = """(() => {
    const parse = (text) => {
        const [, r, g, b, a = '1'] = text.match(/rgba?\\(([\\d.]+),? ([\\d.]+),? ([\\d.]+)(?:[,/ ]+([\\d.]+))?\\)/) || [];
        return r === undefined ? null : [Number(r), Number(g), Number(b), Number(a)];
    };
    const over = (top, under) => top.slice(0, 3).map((part, at) => part * top[3] + under[at] * (1 - top[3])).concat(1);
    const ground = (node) => {
        const layers = [];
        for (let at = node; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour && colour[3] > 0) layers.push(colour);
            if (colour && colour[3] === 1) break;
        }
        return layers.reduceRight((under, top) => over(top, under), [255, 255, 255, 1]);
    };
    const light = (colour) => {
        const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.map((part) => linear(part / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (one, other) => (Math.max(light(one), light(other)) + 0.05) / (Math.min(light(one), light(other)) + 0.05);
    const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let looked = 0;
    while (walk.nextNode()) {
        const text = walk.currentNode, node = text.parentElement, style = getComputedStyle(node);
        if (!text.data.trim() || node.closest('script, style, title, desc, noscript, option, .skip')) continue;
        if (!node.getClientRects().length || style.visibility === 'hidden') continue;
        looked += 1;
        const inPlot = node.closest('svg.plot');
        const colour = parse(inPlot ? style.fill : style.color);
        let under = ground(inPlot || node);
        if (inPlot && node.classList.contains('on')) {  // on a bar, not on the ground
            const bar = inPlot.querySelector('.share.' + node.classList[1]);
            under = parse(getComputedStyle(bar).fill);
        }
        const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
        const value = ratio(over(colour, under), under);
        const said = [value.toFixed(2), node.tagName, String(node.getAttribute('class')), text.data.trim().slice(0, 40)];
        if (value < (large ? 3 : 4.5)) found.push(said);
    }
    const shapes = 'svg.plot .bin, svg.plot .curve, .lanes-svg circle, svg.meter .mark, svg.meter .band';
    for (const node of document.querySelectorAll(shapes)) {
        looked += 1;
        const style = getComputedStyle(node), colour = parse(style.stroke !== 'none' ? style.stroke : style.fill);
        const value = ratio(colour, ground(node.closest('svg')));
        if (value < 3) found.push([value.toFixed(2), node.tagName, node.getAttribute('class'), 'a shape']);
    }
    for (const node of document.querySelectorAll('select, input, button:not(th button, .links button, .chips button)')) {
        if (!node.getClientRects().length) continue;
        looked += 1;
        const value = ratio(parse(getComputedStyle(node).borderTopColor), ground(node.parentElement));
        if (value < 3) found.push([value.toFixed(2), node.tagName, node.id, 'a border']);
    }
    return [looked, found];
})()"""


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
    page = opened(shown.html)
    page.run("document.getElementById('v-trace').focus()")
    visited = ["v-trace"]
    while visited[-1] != "v-list" and len(visited) < 40:
        page.press("Tab")
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
        visited.append(page.run("document.activeElement.id || document.activeElement.textContent"))
    controls = ["v-trace", "v-against", "v-agent", "v-kind", "v-find", "v-clear", "v-help"]
    assert [name for name in visited if name in controls] == controls
    assert visited.index("v-axis") < visited.index("v-list")
    assert any(name.startswith("Violations") for name in visited)
    page.press("Tab")
    assert page.run("document.activeElement.closest('#v-step') !== null || document.activeElement.closest('#metrics') !== null")


@pytest.mark.full
def test_the_list_tells_which_row_of_how_many_is_chosen(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html)
    page.click("#row-1")
    row = "document.getElementById(document.getElementById('v-list').getAttribute('aria-activedescendant'))"
    assert page.run(f"[{row}.ariaPosInSet, {row}.ariaSelected, {row}.getAttribute('role')]") == ["2", "true", "option"]
    assert int(page.run(f"{row}.ariaSetSize")) == page.run("document.querySelectorAll('#v-rows > .row').length")
