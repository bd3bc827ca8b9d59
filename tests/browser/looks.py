"""What tests ask of the looks of a page, as expressions that the browser evaluates."""

from __future__ import annotations

import json
from collections.abc import Sequence

WIDTHS = (1280, 768, 390)
FIRST_PX = 800
"""The height of the first screen."""

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
"""How many texts, shapes and borders were looked at, and those with too little contrast (WCAG 2.2 AA)."""


def unseen(texts: Sequence[str]) -> str:
    """Which of these texts nobody can read on the first screen: not there, hidden, cut off, or below it."""
    return f"""(() => {{
        const whole = (text) => text.replace(/\\s+/g, ' ').trim(), missing = [];
        const bottom = scrollY === 0 ? {FIRST_PX} : -1;
        for (const wanted of {json.dumps(list(texts))}) {{
            const holders = [...document.querySelectorAll('main *')].filter((node) =>
                node.checkVisibility({{ checkOpacity: true, checkVisibilityCSS: true, contentVisibilityAuto: true }}) &&
                whole(node.textContent).includes(wanted) &&
                ![...node.children].some((child) => whole(child.textContent).includes(wanted)));
            const seen = holders.some((node) => {{
                const box = node.getBoundingClientRect();
                const cut = node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).overflowX !== 'visible';
                const inside = box.top >= 0 && box.bottom <= bottom && box.left >= 0 && box.right <= innerWidth;
                return box.height > 0 && inside && !cut;
            }});
            if (!seen) missing.push(wanted);
        }}
        return missing;
    }})()"""


OVERFLOW = "Math.max(0, document.documentElement.scrollWidth - innerWidth)"
"""By how many pixels the page is wider than the screen."""
