// The page's script: shows tabs, sorts tables, chooses the theme, and shows traces.
//
// The content of a trace is untrusted. It reaches the page in two ways only: as a text node, through `shown`, which escapes
// invisible characters, or as a number. Nothing is ever parsed as HTML; the page's policy (CSP) also forbids it.
"use strict";

(() => {
  // Properties of a step, as bits; page/trace.py has the same constants.
  const HARD = 1,
    SOFT = 2,
    FAULT = 4,
    REWRITTEN = 8,
    BLOCKED = 16,
    APPROVAL = 32,
    ERROR = 64,
    WITNESS = 128,
    REGION = 256;
  const SLICE = 512,
    HIGH = 1024,
    WRITE = 2048;
  const GOVERNED = REWRITTEN | BLOCKED | APPROVAL;
  const CHIPS = [
    [HARD | SOFT, "Violations"],
    [FAULT, "Faults"],
    [GOVERNED, "Governance"],
    [ERROR, "Errors"],
    [WRITE, "Writes"],
    [HIGH, "High impact"],
    [REGION | WITNESS, "Window of the violation"],
    [SLICE, "Leads to the violation"],
  ];
  const ROW = 24; // height of a row,
  const STACKED = 46; // and of one with two lines
  const SPARE = 12; // rows drawn beyond what is seen
  const SLICE_MS = 12; // a search yields to user input after this long
  const LONG = 2000; // characters of a text, and
  const MANY = 60; // entries of a list, that are shown before one asks for more
  const PRINTED = 400; // steps that are printed

  const $ = (id) => document.getElementById(id);
  const PLAIN = /^[\x20-\x7e]*$/;
  const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

  /** Text that is safe to show: control characters, bidirectional marks and unusual blanks are escaped. */
  function shown(text, lines = false) {
    const string = String(text);
    return PLAIN.test(string)
      ? string
      : string.replace(HIDDEN, (char) => {
          if (lines && (char === "\n" || char === "\t")) return char;
          return `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`;
        });
  }

  /** An element; children are elements or text. Attributes never come from a trace. */
  function make(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
      else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) node.append(child instanceof Node ? child : shown(child));
    }
    return node;
  }

  function drawn(name, attributes) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  }

  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const inWords = (name) => name.replace(/_/g, " ");

  function readData(id) {
    const node = $(id);
    return node === null ? null : JSON.parse(node.textContent);
  }

  // -- theme and tables ----------------------------------------------------------------------------------------------

  function setUpTheme() {
    const button = $("theme"),
      names = ["system", "light", "dark"];
    let theme = "system";
    try {
      theme = localStorage.getItem("mat-theme") || theme;
    } catch {
      /* a file may have no storage */
    }
    const apply = () => {
      if (!names.includes(theme)) theme = "system";
      if (theme === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = theme;
      button.textContent = `Theme: ${theme}`;
      if (viewer) viewer.redraw(true);
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      theme = names[(names.indexOf(theme) + 1) % names.length];
      try {
        localStorage.setItem("mat-theme", theme);
      } catch {
        /* then the theme lasts for this visit only */
      }
      apply();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
    apply();
  }

  /**
   * Headers sort their table: numbers numerically, missing values last; a third click restores the report's order. In print
   * they are plain text, because a browser does not repeat buttons at the top of each page.
   */
  function setUpTables() {
    const buttons = [];
    for (const table of document.querySelectorAll("table.data")) {
      const body = table.tBodies[0],
        original = [...body.rows],
        heads = [...table.tHead.rows[0].cells];
      if (original.length < 2) continue;
      heads.forEach((head, place) => {
        const button = make("button", { type: "button" }, head.textContent);
        head.replaceChildren(button);
        buttons.push([head, button]);
        button.addEventListener("click", () => {
          const now = head.getAttribute("aria-sort");
          const next = now === null ? "ascending" : now === "ascending" ? "descending" : null;
          for (const other of heads) other.removeAttribute("aria-sort");
          if (next !== null) head.setAttribute("aria-sort", next);
          body.append(...(next === null ? original : sorted(original, place, next === "ascending" ? 1 : -1)));
        });
      });
    }
    addEventListener("beforeprint", () => buttons.forEach(([head, button]) => head.replaceChildren(button.textContent)));
    addEventListener("afterprint", () => buttons.forEach(([head, button]) => head.replaceChildren(button)));
  }

  function sorted(rows, place, direction) {
    const keyed = rows.map((row) => {
      const cell = row.cells[place],
        by = cell.dataset.by;
      const said = by === undefined ? cell.textContent : by;
      return { row, said, number: said.trim() === "" ? NaN : Number(said), none: said === "" || said === "-" };
    });
    const numbers = keyed.every((item) => item.none || !Number.isNaN(item.number));
    keyed.sort((one, other) => {
      if (one.none || other.none) return Number(one.none) - Number(other.none);
      return direction * (numbers ? one.number - other.number : one.said < other.said ? -1 : Number(one.said > other.said));
    });
    return keyed.map((item) => item.row);
  }

  // -- tabs ----------------------------------------------------------------------------------------------------------

  let tabs = []; // [link, panel]

  /** The links of the bar become tabs. Without this script they lead to parts of one long page, which paper shows, too. */
  function setUpTabs() {
    const list = document.querySelector(".tabs");
    if (!list) return;
    tabs = [...list.children].map((link) => [link, $(link.hash.slice(1)).closest(".panel")]);
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", "Sections");
    for (const [link, panel] of tabs) {
      link.id = `tab-${panel.id}`;
      link.setAttribute("role", "tab");
      link.setAttribute("aria-controls", panel.id);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", link.id);
      panel.addEventListener("beforematch", () => showPanel(panel)); // the browser found text in it
      link.addEventListener("click", () => showPanel(panel));
    }
    const keys = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    list.addEventListener("keydown", (event) => {
      const at = tabs.findIndex(([link]) => link === event.target);
      if (!(event.key in keys) || at < 0) return;
      const to = keys[event.key],
        next = Number.isFinite(to) ? (at + to + tabs.length) % tabs.length : to < 0 ? 0 : tabs.length - 1;
      showPanel(tabs[next][1]);
      tabs[next][0].focus();
      event.preventDefault();
    });
    addEventListener("hashchange", showHash);
    showPanel(tabs[0][1]);
    showHash();
  }

  /** Show one panel and hide the others, in a way that lets the browser's own search find text in them. */
  function showPanel(panel) {
    for (const [link, other] of tabs) {
      const chosen = other === panel;
      link.setAttribute("aria-selected", String(chosen));
      link.tabIndex = chosen ? 0 : -1;
      if (chosen) other.removeAttribute("hidden");
      else other.setAttribute("hidden", "until-found");
    }
    if (viewer && panel.contains($("traces"))) viewer.reveal();
  }

  /** Show what the address names, such as `#counterexample-0`. */
  function showHash() {
    const node = location.hash ? $(location.hash.slice(1)) : tabs[0][1].firstElementChild,
      panel = node && node.closest(".panel");
    if (!panel) return;
    showPanel(panel);
    if (node === panel.firstElementChild) scrollTo(0, 0);
    else node.scrollIntoView();
  }

  // -- a trace -------------------------------------------------------------------------------------------------------

  class Trace {
    constructor(place) {
      this.place = place;
      Object.assign(this, readData(`trace-${place}`));
      this.count = this.step.length;
      this.parts = new Map();
      this.haystack = new Map();
      this.marksAt = new Map();
      for (const [at, kind, text] of this.marks) {
        if (!this.marksAt.has(at)) this.marksAt.set(at, []);
        this.marksAt.get(at).push([kind, text]);
      }
      this.from = new Map();
      this.to = new Map();
      for (const [at, source, relation, artefact] of this.sources) {
        const link = [source, at, this.relations[relation], this.artefacts[artefact]];
        if (!this.from.has(at)) this.from.set(at, []);
        this.from.get(at).push(link);
        if (source < 0) continue;
        if (!this.to.has(source)) this.to.set(source, []);
        this.to.get(source).push(link);
      }
    }

    /** [call, reply, facts] of a step; its part is read when first asked for. */
    facts(at) {
      const number = Math.floor(at / this.part);
      let part = this.parts.get(number);
      if (part === undefined) {
        part = readData(`trace-${this.place}-${number}`);
        this.parts.set(number, part);
      }
      return part[at % this.part];
    }

    agentOf(at) {
      return this.agents[this.agent[at]];
    }
    kindOf(at) {
      return this.kinds[this.kind[at]];
    }
    actionOf(at) {
      return this.actions[this.action[at]];
    }
    call(at) {
      return `${this.actionOf(at)}(${this.facts(at)[0]})`;
    }

    /** The index of a step, usually equal to its number. */
    placeOf(step) {
      return this.step[step] === step ? step : this.step.indexOf(step);
    }

    /** All text of a step in lower case, for the search. */
    words(at) {
      let found = this.haystack.get(at);
      if (found === undefined) {
        const said = [this.agentOf(at), this.kindOf(at), this.actionOf(at)];
        const [call, reply, facts] = this.facts(at);
        said.push(call, reply);
        collect(facts, said);
        for (const [, text] of this.marksAt.get(at) || []) said.push(text);
        found = said.join("\n").toLowerCase();
        this.haystack.set(at, found);
      }
      return found;
    }
  }

  function collect(value, said) {
    if (typeof value === "string") said.push(value);
    else if (typeof value === "number") said.push(String(value));
    else if (Array.isArray(value)) for (const item of value) collect(item, said);
    else if (value !== null && typeof value === "object") {
      for (const [key, item] of Object.entries(value)) {
        said.push(key);
        collect(item, said);
      }
    }
  }

  // -- two traces side by side ---------------------------------------------------------------------------------------

  /** Matched steps of two traces: [left or -1, right or -1] in order. Patience diff on the calls; among calls that remain
   *  unmatched, the nth call of an action by an agent is matched with the nth one on the other side. */
  function align(left, right) {
    const pair = new Int32Array(left.count).fill(-1);
    const names = (trace, from, to) => {
      const found = [];
      for (let at = from; at < to; at++) found.push(`${trace.agentOf(at)}\n${trace.kindOf(at)}\n${trace.actionOf(at)}`);
      return found;
    };
    const work = [[0, left.count, 0, right.count]];
    while (work.length) {
      let [a, b, c, d] = work.pop();
      while (a < b && c < d && left.asked[a] === right.asked[c]) pair[a++] = c++;
      while (a < b && c < d && left.asked[b - 1] === right.asked[d - 1]) pair[--b] = --d;
      if (a === b || c === d) continue;
      const anchors = rising(unique(left.asked, a, b, right.asked, c, d));
      if (anchors.length) {
        for (const [one, other] of [...anchors, [b, d]]) {
          if (one > a || other > c) work.push([a, one, c, other]);
          if (one < b) pair[one] = other;
          a = one + 1;
          c = other + 1;
        }
      } else {
        for (const [one, other] of rising(nth(names(left, a, b), names(right, c, d)))) pair[a + one] = c + other;
      }
    }
    const rows = [];
    let c = 0;
    for (let a = 0; a < left.count; a++) {
      if (pair[a] < 0) rows.push([a, -1]);
      else {
        while (c < pair[a]) rows.push([-1, c++]);
        rows.push([a, c++]);
      }
    }
    while (c < right.count) rows.push([-1, c++]);
    return rows;
  }

  /** Index pairs of the values that occur once on each side, ordered by the left index. */
  function unique(one, a, b, other, c, d) {
    const found = new Map();
    for (let at = a; at < b; at++) found.set(one[at], found.has(one[at]) ? null : [at, -1]);
    for (let at = c; at < d; at++) {
      const pair = found.get(other[at]);
      if (pair) found.set(other[at], pair[1] < 0 ? [pair[0], at] : null);
    }
    return [...found.values()].filter((pair) => pair !== null && pair[1] >= 0).sort((x, y) => x[0] - y[0]);
  }

  /** Index pairs of the nth occurrence of each name on both sides, ordered by the left index. */
  function nth(one, other) {
    const places = new Map(),
      used = new Map(),
      pairs = [];
    other.forEach((name, at) => {
      if (!places.has(name)) places.set(name, []);
      places.get(name).push(at);
    });
    one.forEach((name, at) => {
      const number = used.get(name) || 0,
        there = places.get(name) || [];
      used.set(name, number + 1);
      if (number < there.length) pairs.push([at, there[number]]);
    });
    return pairs;
  }

  /** The longest subsequence of pairs whose right indexes increase. */
  function rising(pairs) {
    const tails = [],
      before = new Int32Array(pairs.length).fill(-1);
    pairs.forEach(([, value], at) => {
      let low = 0,
        high = tails.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (pairs[tails[middle]][1] < value) low = middle + 1;
        else high = middle;
      }
      if (low > 0) before[at] = tails[low - 1];
      tails[low] = at;
    });
    const found = [];
    for (let at = tails.length ? tails[tails.length - 1] : -1; at >= 0; at = before[at]) found.push(pairs[at]);
    return found.reverse();
  }

  // -- values --------------------------------------------------------------------------------------------------------

  /** A recorded value as a tree; long texts and lists open on demand. */
  function valueNode(value) {
    if (typeof value === "string") return textNode(value);
    if (value === null || typeof value !== "object") return make("span", {}, String(value));
    const keys = Object.keys(value).sort().join();
    if (keys === "length,pii,sha256") return make("span", {}, `hash of ${plural(value.length, "character")}: ${value.sha256}`);
    const list = Array.isArray(value),
      entries = list ? value.map((item) => [null, item]) : Object.entries(value);
    if (!entries.length) return make("span", {}, list ? "[]" : "{}");
    const node = make(list ? "ol" : "dl");
    const add = (from, to) => {
      for (const [key, item] of entries.slice(from, to)) {
        if (list) node.append(make("li", {}, valueNode(item)));
        else node.append(make("dt", {}, key), make("dd", {}, valueNode(item)));
      }
    };
    add(0, MANY);
    if (entries.length > MANY) {
      const more = make("button", { type: "button" }, `${entries.length - MANY} more`);
      more.addEventListener("click", () => {
        holder.remove();
        add(MANY, entries.length);
      });
      const holder = list ? make("li", {}, more) : make("dd", {}, more);
      node.append(holder);
    }
    return node;
  }

  function textNode(text) {
    const long = text.length > 80 || text.includes("\n"),
      cut = text.length > LONG;
    const node = make("span", long ? { class: "text", tabindex: "0", role: "group", "aria-label": "text" } : {});
    node.append(long ? shown(cut ? text.slice(0, LONG) : text, true) : JSON.stringify(shown(text)).replace(/\\\\u/g, "\\u"));
    if (!cut) return node;
    const more = make("button", { type: "button" }, `${(text.length - LONG).toLocaleString("en")} more characters`);
    more.addEventListener("click", () => node.replaceChildren(shown(text, true)));
    node.append(" ", more);
    return node;
  }

  const WORDS = {
    site: "site",
    role: "role",
    sealed: "sealed at",
    effect: "effect",
    impact: "impact",
    effected: "effect happened",
    invoked: "port ran",
    taped: "from the cassette",
  };

  /** The facts of a step: [title, value, how it is drawn]. Two steps differ in a fact if its JSON differs. */
  function sections(trace, at) {
    const facts = trace.facts(at)[2],
      found = [];
    const line = { agent: trace.agentOf(at), at: `${trace.at[at].toLocaleString("en")} ms` };
    for (const key of Object.keys(WORDS)) if (key in facts) line[WORDS[key]] = facts[key];
    if ("invoked" in facts) line[WORDS.invoked] = plural(facts.invoked, "time");
    if ("sealed" in facts) line[WORDS.sealed] = `${facts.sealed.toLocaleString("en")} ms`;
    const { at: asked, [WORDS.sealed]: sealed, ...compared } = line; // times differ after any earlier delay
    const add = (title, value, draw) =>
      found.push([title, value, draw || (() => make("div", { class: "value" }, valueNode(value)))]);
    if (facts.arguments) add("Arguments asked", facts.arguments, () => askedNode(facts));
    if (facts.executed) add("Arguments executed", facts.executed[0]);
    if (facts.mediation) add("Governance", facts.mediation, () => mediationNode(facts.mediation));
    if (facts.faults) add("Faults", facts.faults, () => faultsNode(facts.faults));
    if (facts.raw) add("What the port said", facts.raw, () => observedNode(facts.raw));
    const observed = facts.observation || {};
    add(facts.raw ? "What the agent got" : "Reply", observed, () => observedNode(observed));
    add("Site and effect", compared, () => lineNode(line));
    if (facts.state) add("State", facts.state);
    if (facts.links) add("Recorded links", facts.links, () => linksNode(facts.links));
    return found;
  }

  function askedNode(facts) {
    const node = make("div", { class: "value" }, valueNode(facts.arguments));
    return facts.hashed ? make("div", {}, node, make("p", { class: "hashed" }, facts.hashed)) : node;
  }

  function linksNode(links) {
    return make(
      "ul",
      { class: "links" },
      links.map((link) => make("li", {}, make("code", {}, link.join(" ")))),
    );
  }

  function lineNode(line) {
    const node = make("dl");
    for (const [key, value] of Object.entries(line))
      node.append(make("dt", {}, key), make("dd", {}, value === true ? "yes" : String(value)));
    return node;
  }

  function mediationNode(mediation) {
    const said = { allow: "allowed", rewrite: "rewritten", block: "blocked" }[mediation.decision] || mediation.decision;
    const node = make("div", { class: "mediation" }, make("b", {}, said), mediation.rule ? ` by ${mediation.rule}` : "");
    if (mediation.reason) node.append(make("div", {}, mediation.reason));
    if (mediation.arguments)
      node.append(make("div", { class: "value" }, "arguments put in place:", valueNode(mediation.arguments[0])));
    for (const key of ["approval", "grant"]) if (mediation[key]) node.append(make("div", {}, `${key}: ${mediation[key]}`));
    if (mediation.under) node.append(make("div", {}, `under ${mediation.under.join(", ")}`));
    return node;
  }

  function faultsNode(faults) {
    return make(
      "div",
      {},
      faults.map((fault) =>
        make(
          "div",
          { class: "fault" },
          make("b", {}, fault.operator),
          ` (${fault.effect}${fault.changed ? "" : ", changed nothing"})`,
          Object.keys(fault.parameters).length ? make("div", { class: "value" }, valueNode(fault.parameters)) : null,
        ),
      ),
    );
  }

  function observedNode(observed) {
    const node = make("div", { class: "value" });
    if (observed.cancelled) node.append(make("div", {}, make("b", {}, "cancelled")));
    if (observed.error) {
      const [type, message, kind, wait] = observed.error;
      node.append(
        make("div", {}, make("b", {}, type), kind ? ` (${kind})` : "", wait !== null ? `, retry after ${wait} ms` : ""),
        textNode(message),
      );
    }
    if (observed.value)
      node.append(observed.opaque ? make("span", {}, "an object without recorded form: ") : "", valueNode(observed.value[0]));
    else if (!observed.error && !observed.cancelled) node.append(make("span", { class: "none" }, "nothing"));
    if (observed.chunks !== undefined) node.append(make("div", {}, plural(observed.chunks, "chunk")));
    if (observed.usage)
      node.append(
        make(
          "div",
          { class: "none" },
          `usage: ${Object.entries(observed.usage)
            .map(([key, item]) => `${key} ${item}`)
            .join(", ")}`,
        ),
      );
    return node;
  }

  // -- the viewer ----------------------------------------------------------------------------------------------------

  class Viewer {
    constructor(traces) {
      this.traces = traces;
      this.opened = new Map();
      this.list = $("v-list");
      this.rows = $("v-rows");
      this.canvas = $("v-strip");
      this.trace = null;
      this.against = null;
      this.pairs = [];
      this.view = [];
      this.selected = -1; // in the view
      this.masks = 0;
      this.searching = 0;
      this.frame = 0;
      this.stale = true; // the timeline must be drawn anew, not only its mark
      this.jumped = "";
      $("viewer").hidden = false;
      $("v-filters").open = !matchMedia("(max-width: 900px)").matches;
      this.fill(
        $("v-trace"),
        traces.map((item, place) => [place, item.name]),
      );
      this.listen();
    }

    // choosing

    fill(select, options) {
      select.replaceChildren(...options.map(([value, name]) => make("option", { value: String(value) }, name)));
    }

    /** The index of the trace that a trace is compared with by default; -1 without one. */
    partner(place) {
      return this.traces[place].against ?? -1;
    }

    load(place) {
      if (!this.opened.has(place)) this.opened.set(place, new Trace(place));
      return this.opened.get(place);
    }

    /** Open a trace at a step, or at its violation, next to another trace (default: the nominal run of the same test). */
    open(place, step = null, against = this.partner(place)) {
      this.trace = this.load(place);
      this.against = against >= 0 && against !== place ? this.load(against) : null;
      this.pairs = this.against ? align(this.trace, this.against) : [];
      $("v-trace").value = String(place);
      const others = this.traces.map((item, other) => [other, item.name, item.item === this.traces[place].item]);
      others.sort((one, other) => Number(other[2]) - Number(one[2]) || one[0] - other[0]);
      this.fill($("v-against"), [
        [-1, this.traces.length > 1 ? "nothing" : "no other trace"],
        ...others.filter(([other]) => other !== place),
      ]);
      $("v-against").value = String(this.against ? against : -1);
      $("v-against").disabled = this.traces.length < 2;
      const longest = (names, most) => Math.min(most, Math.max(4, ...names.map((name) => name.length))) + 1;
      this.widths = {
        step: Math.max(4, String(this.trace.step[this.trace.count - 1] || 0).length) + 1,
        at: Math.max(3, (this.trace.at[this.trace.count - 1] || 0).toLocaleString("en").length) + 1,
        agent: longest(this.trace.agents, 16),
        kind: longest(this.trace.kinds, 15),
      };
      this.measure();
      this.clear(false);
      this.describe();
      this.filter();
      const first = this.trace.violations[this.trace.verdict];
      const wanted = step !== null ? step : first ? first.step : this.trace.count ? this.trace.step[0] : -1;
      this.show(this.trace.placeOf(wanted));
    }

    /** Take the height of the rows. Where two columns would cut the calls, a row has two lines: a call, and what came of it. */
    measure() {
      this.stacked = matchMedia(`(max-width: ${this.against ? 1500 : 600}px)`).matches;
      this.high = this.stacked ? STACKED : ROW;
      const count = this.against ? this.pairs.length : this.trace.count;
      this.list.parentElement.style.setProperty("--full", `${count * this.high + 2 * ROW + 6}px`);
      this.rows.style.setProperty("--row", `${this.high}px`);
      this.rows.style.height = `${this.view.length * this.high}px`;
    }

    clear(apply = true) {
      const trace = this.trace,
        both = this.against ? [trace, this.against] : [trace];
      const names = (key) => [...new Set(both.flatMap((item) => item[key]))];
      this.fill($("v-agent"), [["", `all (${names("agents").length})`], ...names("agents").map((name, at) => [at, name])]);
      this.fill($("v-kind"), [["", `all (${names("kinds").length})`], ...names("kinds").map((name, at) => [at, inWords(name)])]);
      this.agentNames = names("agents");
      this.kindNames = names("kinds");
      $("v-find").value = "";
      this.masks = 0;
      this.onlyDiffering = false;
      this.chips();
      if (apply) this.filter();
    }

    chips() {
      const counts = CHIPS.map(([mask]) => this.trace.bits.reduce((sum, bits) => sum + Number((bits & mask) !== 0), 0));
      const nodes = CHIPS.map(([mask, name], at) => {
        const button = make(
          "button",
          { type: "button", "aria-pressed": "false", disabled: counts[at] === 0 },
          `${name} ${counts[at].toLocaleString("en")}`,
        );
        button.addEventListener("click", () => {
          this.masks ^= mask;
          button.setAttribute("aria-pressed", String((this.masks & mask) === mask));
          this.filter();
        });
        return button;
      });
      if (this.against) {
        const count = this.pairs.filter((pair) => this.state(pair) !== "same").length;
        const button = make(
          "button",
          { type: "button", "aria-pressed": "false", disabled: count === 0 },
          `Differences ${count.toLocaleString("en")}`,
        );
        button.addEventListener("click", () => {
          this.onlyDiffering = !this.onlyDiffering;
          button.setAttribute("aria-pressed", String(this.onlyDiffering));
          this.filter();
        });
        nodes.unshift(button);
      }
      $("v-chips").replaceChildren(...nodes);
    }

    /** Show the trace's facts, violations and faults, with buttons that jump to their steps. */
    describe() {
      const trace = this.trace,
        nodes = [];
      const jump = (step, said) => {
        const button = make("button", { type: "button" }, said);
        button.addEventListener("click", () => {
          this.show(trace.placeOf(step), true);
          this.list.focus();
        });
        return button;
      };
      const first = trace.violations[trace.verdict],
        others = trace.violations.filter((violation) => violation !== first);
      for (const violation of [...(first ? [first] : []), ...others].slice(0, 6)) {
        nodes.push(
          make(
            "p",
            {},
            jump(violation.step, `step ${violation.step}`),
            make("span", { class: `badge ${violation.severity === "hard" ? "bad" : "warn"}` }, violation.contract),
            violation.message,
          ),
        );
      }
      if (trace.violations.length > 6)
        nodes.push(make("p", {}, `and ${plural(trace.violations.length - 6, "more violation")}: press v to go through them`));
      for (const [said, step] of trace.schedule) {
        nodes.push(
          make("p", {}, step === null ? "" : jump(step, `step ${step}`), make("span", { class: "badge warn" }, "fault"), said),
        );
      }
      if (trace.about.length)
        nodes.push(make("p", { class: "facts-line" }, trace.about.map(([name, value]) => `${name}: ${value}`).join(" · ")));
      $("v-about").replaceChildren(...nodes);
      $("v-about").hidden = nodes.length === 0;
    }

    // filtering

    /** Whether a step (an index of one trace) passes the filters of agent, kind and properties. */
    wants(trace, at, agent, kind) {
      return (
        (agent < 0 || trace.agent[at] === agent) &&
        (kind < 0 || trace.kind[at] === kind) &&
        (!this.masks || (trace.bits[at] & this.masks) !== 0)
      );
    }

    filter() {
      const trace = this.trace,
        kept = this.current();
      const agent = $("v-agent").value,
        kind = $("v-kind").value,
        text = $("v-find").value.trim().toLowerCase();
      const sides = (this.against ? [trace, this.against] : [trace]).map((side) => [
        side,
        agent === "" ? -1 : this.numberOf(side.agents, this.agentNames[Number(agent)]),
        kind === "" ? -1 : this.numberOf(side.kinds, this.kindNames[Number(kind)]),
      ]);
      const view = [];
      if (this.against) {
        this.pairs.forEach((pair, row) => {
          if (this.onlyDiffering && this.state(pair) === "same") return;
          if (sides.some(([side, a, k], at) => pair[at] >= 0 && this.wants(side, pair[at], a, k))) view.push(row);
        });
      } else {
        for (let at = 0; at < trace.count; at++) if (this.wants(trace, at, sides[0][1], sides[0][2])) view.push(at);
      }
      this.searching += 1;
      if (text) this.search(view, text, kept, this.searching);
      else this.settle(view, kept);
    }

    /** The index of a name; -2 if this trace does not have it, so that none of its steps passes the filter. */
    numberOf(names, name) {
      const found = names.indexOf(name);
      return found < 0 ? -2 : found;
    }

    /** Search in slices, so that a long trace does not freeze the page; a new search ends the old one. */
    search(candidates, text, kept, ticket) {
      const found = [];
      let at = 0;
      const go = () => {
        if (ticket !== this.searching) return;
        const end = performance.now() + SLICE_MS;
        while (at < candidates.length && performance.now() < end) {
          const row = candidates[at++];
          if (this.saidIn(row).some((said) => said.includes(text))) found.push(row);
        }
        if (at < candidates.length) {
          $("v-status").textContent =
            `Searching: ${Math.floor((100 * at) / candidates.length)} %, ${found.length.toLocaleString("en")} found`;
          setTimeout(go, 0);
        } else this.settle(found, kept);
      };
      go();
    }

    saidIn(row) {
      if (!this.against) return [this.trace.words(row)];
      const [left, right] = this.pairs[row];
      return [left < 0 ? "" : this.trace.words(left), right < 0 ? "" : this.against.words(right)];
    }

    /** Show these rows, and keep the selected one, or select the next one after it. */
    settle(view, kept) {
      this.view = view;
      this.selected = view.length ? Math.min(this.find(kept), view.length - 1) : -1;
      this.rows.style.height = `${view.length * this.high}px`;
      this.tell();
      this.reveal();
      this.detail();
      this.redraw(true);
    }

    /** The first index in the view at or after a row. */
    find(row) {
      let low = 0,
        high = this.view.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.view[middle] < row) low = middle + 1;
        else high = middle;
      }
      return low;
    }

    tell() {
      const all = this.against ? this.pairs.length : this.trace.count,
        some = this.view.length;
      let said = some === all ? plural(all, "step") : `${some.toLocaleString("en")} of ${plural(all, "step")}`;
      if (this.against) {
        const counts = { same: 0, changed: 0, "left-only": 0, "right-only": 0 };
        for (const pair of this.pairs) counts[this.state(pair)] += 1;
        said += `: ${counts.same} equal, ${counts.changed} changed, `;
        said += `${counts["left-only"]} only in the first, ${counts["right-only"]} only in the second`;
      }
      $("v-status").textContent = said;
    }

    // moving

    current() {
      return this.selected >= 0 ? this.view[this.selected] : 0;
    }

    /** Select a step of the trace by its place; filters that hide it are cleared where `force`. */
    show(at, force = false) {
      const row = this.against ? this.pairs.findIndex((pair) => pair[0] === at) : at;
      const there = this.find(row);
      if (this.view[there] !== row && force) {
        this.clear();
        return this.show(at);
      }
      this.select(there);
    }

    select(at) {
      if (!this.view.length) return;
      this.selected = Math.max(0, Math.min(at, this.view.length - 1));
      this.reveal();
      this.detail();
      this.redraw();
      const step = this.stepNumber();
      const against = this.against ? this.against.place : -1,
        suffix = against === this.partner(this.trace.place) ? "" : `&with=${against < 0 ? "none" : against}`;
      const hash = `#trace=${this.trace.place}&step=${step}${suffix}`;
      if (this.settled && location.hash !== hash) {
        this.jumped = hash;
        history.replaceState(null, "", hash);
      }
    }

    stepNumber() {
      if (!this.against) return this.trace.step[this.current()];
      const [left, right] = this.pairs[this.current()];
      return left >= 0 ? this.trace.step[left] : this.against.step[right];
    }

    /** Scroll so that the selected row is seen, with a little around it. */
    reveal() {
      const top = this.selected * this.high,
        height = this.list.clientHeight;
      if (top < this.list.scrollTop + this.high) this.list.scrollTop = top - 3 * this.high;
      else if (top > this.list.scrollTop + height - 2 * this.high) this.list.scrollTop = top - height + 4 * this.high;
    }

    /** The next row, in a direction, about which something is so. */
    jump(mask, direction, name) {
      for (let at = this.selected + direction; at >= 0 && at < this.view.length; at += direction) {
        const place = this.against ? this.pairs[this.view[at]][0] : this.view[at];
        if (place >= 0 && (this.trace.bits[place] & mask) !== 0) return this.select(at);
      }
      $("v-status").textContent = `No ${direction > 0 ? "further" : "earlier"} ${name} among these steps.`;
    }

    follow(direction) {
      const at = this.against ? (this.pairs[this.current()] || [-1])[0] : this.current();
      const links = (direction < 0 ? this.trace.from : this.trace.to).get(at) || [];
      const link = links.find((item) => item[direction < 0 ? 0 : 1] >= 0);
      if (link) this.show(link[direction < 0 ? 0 : 1], true);
      else
        $("v-status").textContent =
          direction < 0
            ? "Nothing is recorded that this step was made from."
            : "Nothing is recorded that was made from this step.";
    }

    // drawing

    redraw(stale = false) {
      this.stale = this.stale || stale;
      if (!this.frame)
        this.frame = requestAnimationFrame(() => {
          this.frame = 0;
          this.drawRows();
          this.drawStrip();
        });
    }

    get lane() {
      return Math.min(14, 84 / Math.max(1, this.trace.agents.length));
    }
    laneX(agent) {
      return this.lane * (agent + 0.5) + 2;
    }

    drawRows() {
      const before = this.high;
      this.measure();
      if (this.high !== before) this.reveal();
      const lanes = Math.ceil(this.lane * this.trace.agents.length) + 26;
      const wide = this.widths;
      const narrow = matchMedia("(max-width: 900px)").matches;
      const columns = this.against
        ? this.stacked
          ? "1.2ch 5ch minmax(0, 1fr)"
          : "1.2ch 5ch minmax(0, 1fr) 5ch minmax(0, 1fr) minmax(0, 22ch)"
        : this.stacked
          ? `4ch ${lanes}px minmax(0, 1fr)`
          : narrow
            ? `5ch ${lanes}px minmax(5ch, 10ch) minmax(8ch, 1fr) minmax(0, auto)`
            : `${wide.step}ch ${wide.at}ch ${lanes}px ${wide.agent}ch ${wide.kind}ch minmax(12ch, 1fr) minmax(0, auto)`;
      this.list.parentElement.style.setProperty("--columns", columns);
      const heads = this.against
        ? this.stacked
          ? ["", "step", "call, and what differs"]
          : ["", "step", "first", "step", "second", "differs in"]
        : this.stacked
          ? ["step", "", "call and reply"]
          : ["step", "ms", "", "agent", "kind", "call → reply", ""];
      const classes = this.against
        ? ["", "step", "", "step", "", ""]
        : this.stacked
          ? ["step", "lanes", ""]
          : ["step", "at", "lanes", "agent", "kind", "", "marks"];
      if (this.heads !== heads.join())
        $("v-head").replaceChildren(...heads.map((name, at) => make("span", { class: classes[at] }, name)));
      this.heads = heads.join();
      const first = Math.max(0, Math.floor(this.list.scrollTop / this.high) - SPARE);
      const last = Math.min(this.view.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / this.high) + SPARE);
      const nodes = [];
      for (let at = first; at < last; at++) nodes.push(this.against ? this.pairRow(at) : this.stepRow(at));
      if (!this.against && last > first) nodes.push(this.lanes(first, last));
      if (!this.view.length) nodes.push(make("div", { class: "empty" }, "No step fits these filters."));
      this.rows.replaceChildren(...nodes);
      const active = this.selected >= first && this.selected < last ? `row-${this.selected}` : null;
      if (active) this.list.setAttribute("aria-activedescendant", active);
      else this.list.removeAttribute("aria-activedescendant");
    }

    row(at, classes, label, cells) {
      const chosen = at === this.selected;
      const node = make(
        "div",
        {
          id: `row-${at}`,
          role: "option",
          class: `row ${classes.join(" ")}`,
          "aria-selected": String(chosen),
          "aria-label": shown(label),
          "aria-posinset": String(at + 1),
          "aria-setsize": String(this.view.length),
        },
        cells,
      );
      node.style.top = `${at * this.high}px`;
      return node;
    }

    /** The style classes of a step: what it violates, and whether it explains the violation. */
    stepClasses(trace, place) {
      return [
        [HARD, "hard"],
        [SOFT, "soft"],
        [WITNESS, "witness"],
        [REGION, "region"],
      ]
        .filter(([bit]) => trace.bits[place] & bit)
        .map(([, name]) => name);
    }

    badges(marks) {
      return marks.map(([kind, text]) =>
        make("span", { class: `badge ${MARKS[kind] || ""}` }, kind === "fault" ? `fault ${text}` : text),
      );
    }

    stepRow(at) {
      const trace = this.trace,
        place = this.view[at];
      const classes = this.stepClasses(trace, place);
      const chosen = this.current();
      if (
        (trace.from.get(chosen) || []).some((link) => link[0] === place) ||
        (trace.to.get(chosen) || []).some((link) => link[1] === place)
      )
        classes.push("linked");
      const [asked, got] = trace.facts(place),
        marks = trace.marksAt.get(place) || [];
      const marked = marks.map(([kind, text]) => `, ${markWords(kind, text)}`).join("");
      const action = `${inWords(trace.kindOf(place))} ${trace.actionOf(place)}`;
      const label = `step ${trace.step[place]}, ${trace.agentOf(place)}, ${action}${marked}`;
      if (this.stacked) {
        return this.row(at, ["stacked", ...classes], label, [
          make("span", { class: "step" }, String(trace.step[place])),
          make("span", { class: "lanes" }),
          make("span", { class: "call" }, `${trace.agentOf(place)}: ${trace.call(place)}`),
          make("span", { class: "below" }, this.badges(marks), got ? `→ ${got}` : null),
        ]);
      }
      return this.row(at, ["stepwise", ...classes], label, [
        make("span", { class: "step" }, String(trace.step[place])),
        make("span", { class: "at" }, trace.at[place].toLocaleString("en")),
        make("span", { class: "lanes" }),
        make("span", { class: "agent" }, trace.agentOf(place)),
        make("span", { class: "kind" }, inWords(trace.kindOf(place))),
        make(
          "span",
          { class: got ? "call" : "call whole" },
          make("span", { class: "asked" }, `${trace.actionOf(place)}(${asked})`),
          got ? make("span", { class: "got" }, `→ ${got}`) : null,
        ),
        make("span", { class: "marks" }, this.badges(marks)),
      ]);
    }

    state([left, right]) {
      if (right < 0) return "left-only";
      if (left < 0) return "right-only";
      return this.trace.asked[left] === this.against.asked[right] && this.trace.results[left] === this.against.results[right]
        ? "same"
        : "changed";
    }

    pairRow(at) {
      const pair = this.pairs[this.view[at]],
        state = this.state(pair);
      const sides = [this.trace, this.against].map((trace, side) => (pair[side] < 0 ? null : [trace, pair[side]]));
      const calls = sides.map((side) => (side === null ? "" : `${side[0].agentOf(side[1])}: ${side[0].call(side[1])}`));
      const replies = sides.map((side) => (side === null ? "" : side[0].facts(side[1])[1]));
      const said = calls.map((call, side) => `${call}${replies[side] ? ` → ${replies[side]}` : ""}`);
      const differs =
        state === "changed"
          ? differences(sections(...sides[0]), sections(...sides[1]))
              .filter((item) => !item.equal)
              .map((item) => item.title)
          : [];
      const sign = { same: "", changed: "~", "left-only": "−", "right-only": "+" }[state];
      const words = {
        same: "the same",
        changed: `differs in ${differs.join(", ")}`,
        "left-only": "only in the first",
        "right-only": "only in the second",
      }[state];
      const numbers = sides.map((side) => (side === null ? "" : String(side[0].step[side[1]])));
      const [main] = sides,
        marks = main === null ? [] : main[0].marksAt.get(main[1]) || [];
      const marked = marks.map(([kind, text]) => `, ${markWords(kind, text)}`).join("");
      if (this.stacked) {
        const [left, right] = calls[0] && calls[1] && calls[0] !== calls[1] ? said : replies;
        const below = state === "changed" && left !== right ? `→ ${left || "nothing"} | ${right || "nothing"}` : `→ ${left || right}`;
        return this.row(at, ["stacked", state, ...(main === null ? [] : this.stepClasses(...main))], `${words}: ${said[0] || said[1]}${marked}`, [
          make("span", {}, sign),
          make("span", { class: "step" }, [...new Set(numbers.filter(Boolean))].join("/")),
          make("span", { class: "call" }, calls[0] || calls[1]),
          make("span", { class: "below" }, this.badges(marks), left || right ? make("span", {}, below) : null),
        ]);
      }
      return this.row(at, [state, ...(main === null ? [] : this.stepClasses(...main))], `${words}: ${said[0] || said[1]}${marked}`, [
        make("span", {}, sign),
        make("span", { class: "step" }, numbers[0]),
        make("span", { class: "call" }, said[0]),
        make("span", { class: "step" }, numbers[1]),
        make("span", { class: "call" }, said[1]),
        make(
          "span",
          { class: "marks" },
          this.badges(marks),
          marks.length || state === "same"
            ? null
            : make("span", {}, state === "changed" ? differs.join(", ").toLowerCase() : words),
        ),
      ]);
    }

    /** Lanes of the agents, a dot for each step, and the provenance of the selected one. */
    lanes(first, last) {
      const trace = this.trace,
        head = $("v-head").querySelector(".lanes"),
        left = head ? head.offsetLeft + 3 : 0;
      const width = Math.ceil(this.lane * trace.agents.length) + 26,
        svg = drawn("svg", { class: "lanes-svg", "aria-hidden": "true", width, height: (last - first) * this.high });
      svg.style.top = `${first * this.high}px`;
      svg.style.left = `${left}px`;
      for (let agent = 0; agent < trace.agents.length; agent++) {
        svg.append(
          drawn("line", { class: "lane", x1: this.laneX(agent), x2: this.laneX(agent), y1: 0, y2: (last - first) * this.high }),
        );
      }
      const y = (place) => (this.find(place) - first + 0.5) * this.high,
        x = (place) => this.laneX(trace.agent[place]);
      const chosen = this.current();
      const ways = [
        ...(trace.from.get(chosen) || []).map((link) => ["from", link]),
        ...(trace.to.get(chosen) || []).map((link) => ["to", link]),
      ];
      for (const [style, [source, target]] of ways.slice(0, 40)) {
        if (source < 0 || this.view[this.find(source)] !== source || this.view[this.find(target)] !== target) continue;
        const bulge = Math.max(x(source), x(target)) + 20;
        svg.append(
          drawn("path", {
            class: `way ${style}`,
            d: `M${x(source)} ${y(source)}C${bulge} ${y(source)} ${bulge} ${y(target)} ${x(target)} ${y(target)}`,
          }),
        );
      }
      for (let at = first; at < last; at++) {
        const place = this.view[at];
        svg.append(
          drawn("circle", {
            class: `a${trace.agent[place] % 8}`,
            cx: x(place),
            cy: (at - first + 0.5) * this.high,
            r: at === this.selected ? 5 : 3.5,
          }),
        );
      }
      return svg;
    }

    /** Draw the whole trace by agent once, and the selection over it. */
    drawStrip() {
      const canvas = this.canvas,
        ratio = devicePixelRatio || 1;
      if (this.stale) {
        this.picture = this.drawTimeline(ratio);
        this.stale = false;
        const { width, height } = this.picture;
        canvas.width = width;
        canvas.height = height;
        canvas.style.height = `${height / ratio}px`;
        const trace = this.trace;
        const counted = [
          `${plural(trace.count, "step")} by ${plural(trace.agents.length, "agent")}`,
          plural(trace.violations.length, "violation"),
        ];
        canvas.setAttribute("aria-label", `Timeline of ${counted.join(", ")}. The list below shows the same data.`);
      }
      const pen = canvas.getContext("2d"),
        chosen = this.against ? (this.pairs[this.current()] || [-1])[0] : this.current();
      pen.setTransform(1, 0, 0, 1, 0, 0);
      pen.clearRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(this.picture, 0, 0);
      if (this.selected < 0 || chosen < 0 || !this.trace.count) return;
      pen.scale(ratio, ratio);
      pen.strokeStyle = this.colour("--ink");
      pen.strokeRect(this.stripX(chosen) - 2.5, 1, 5, canvas.height / ratio - 2);
    }

    colour(name) {
      const probe = $("v-status");
      probe.style.color = `var(${name})`;
      const found = getComputedStyle(probe).color;
      probe.style.color = "";
      return found;
    }

    /** Draw steps by agent, faults, decisions, the window and the violations as a picture. */
    drawTimeline(ratio) {
      const trace = this.trace,
        picture = document.createElement("canvas"),
        width = this.canvas.clientWidth,
        top = 14;
      const each = Math.max(5, Math.min(14, 96 / Math.max(1, trace.agents.length))),
        names = each >= 9 ? 96 : 8;
      const height = Math.ceil(top + each * trace.agents.length + 6),
        room = Math.max(10, width - names - 14);
      picture.width = Math.max(1, width * ratio);
      picture.height = height * ratio;
      const byTime = $("v-axis").value === "time",
        most = (byTime ? trace.at[trace.count - 1] : trace.count - 1) || 1;
      this.stripX = (place) => names + 2 + (room * (byTime ? trace.at[place] : place)) / most;
      this.stripAt = (pixel) => this.nearest(((pixel - names - 2) / room) * most, byTime);
      const pen = picture.getContext("2d");
      pen.scale(ratio, ratio);
      this.drawAgents(pen, { width, top, each, names });
      this.drawSteps(pen, { top, each });
      this.drawMarks(pen, { height });
      return picture;
    }

    drawAgents(pen, { width, top, each, names }) {
      pen.font = `10px ${getComputedStyle(document.body).fontFamily}`;
      pen.strokeStyle = this.colour("--line");
      pen.fillStyle = this.colour("--dim");
      this.trace.agents.forEach((name, agent) => {
        const y = top + each * (agent + 0.5);
        pen.beginPath();
        pen.moveTo(names, y);
        pen.lineTo(width - 8, y);
        pen.stroke();
        if (each >= 9) pen.fillText(shown(name), 6, y + 3.5, names - 12);
      });
    }

    /** Draw the steps that pass the filters, one for each pixel. */
    drawSteps(pen, { top, each }) {
      const trace = this.trace,
        colours = agentColours(),
        drawnAt = new Set();
      for (const row of this.view) {
        const place = this.against ? this.pairs[row][0] : row;
        if (place < 0) continue;
        const at = this.stripX(place),
          key = Math.round(at * 2) * 1000 + trace.agent[place];
        if (drawnAt.has(key)) continue;
        drawnAt.add(key);
        pen.fillStyle = colours[trace.agent[place] % 8];
        pen.fillRect(at - 1, top + each * (trace.agent[place] + 0.5) - each / 2 + 1, 2, each - 2);
      }
    }

    drawMarks(pen, { height }) {
      const trace = this.trace,
        [bad, warn, gov] = ["--bad", "--warn", "--gov"].map((name) => this.colour(name));
      let from = -1,
        to = -1;
      for (let place = 0; place < trace.count; place++) {
        const bits = trace.bits[place],
          at = this.stripX(place);
        if (bits & REGION) [from, to] = [from < 0 ? at : from, at];
        if (bits & (HARD | SOFT)) {
          pen.fillStyle = bits & HARD ? bad : warn;
          pen.fillRect(at - 0.75, 0, 1.5, height);
        }
        if (bits & FAULT) {
          pen.fillStyle = warn;
          pen.beginPath();
          pen.moveTo(at - 4, 2);
          pen.lineTo(at + 4, 2);
          pen.lineTo(at, 9);
          pen.fill();
        }
        if (bits & (REWRITTEN | BLOCKED)) {
          pen.fillStyle = gov;
          pen.fillRect(at - 3, 3, 6, 6);
        }
      }
      if (from < 0) return;
      pen.globalAlpha = 0.18;
      pen.fillStyle = warn;
      pen.fillRect(from - 2, 2, to - from + 4, height - 4);
      pen.globalAlpha = 1;
    }

    /** The index of the step nearest to a click on the strip. */
    nearest(value, byTime) {
      const trace = this.trace;
      if (!byTime) return Math.max(0, Math.min(trace.count - 1, Math.round(value)));
      let best = 0;
      for (let place = 1; place < trace.count; place++)
        if (Math.abs(trace.at[place] - value) < Math.abs(trace.at[best] - value)) best = place;
      return best;
    }

    // the selected step

    detail() {
      const panel = $("v-step");
      if (this.selected < 0) return panel.replaceChildren(make("p", { class: "none" }, "No step is selected."));
      panel.replaceChildren(...(this.against ? this.pairDetail(this.pairs[this.current()]) : this.stepDetail(this.current())));
      panel.scrollTop = 0;
    }

    stepDetail(place) {
      const trace = this.trace,
        step = trace.step[place],
        nodes = [make("h3", {}, `Step ${step}: ${inWords(trace.kindOf(place))} `, make("code", {}, trace.actionOf(place)))];
      for (const violation of trace.violations.filter((item) => item.step === step)) nodes.push(violationNode(violation));
      for (const [title, , draw] of sections(trace, place)) nodes.push(make("h4", {}, title), draw());
      const ways = (links, end, title) => {
        if (!links || !links.length) return;
        nodes.push(
          make("h4", {}, title),
          make(
            "ul",
            { class: "links" },
            links.slice(0, MANY).map((link) => {
              const other = link[end];
              if (other < 0) return make("li", {}, `${link[2]} ${link[3]} (from outside the trace)`);
              const button = make(
                "button",
                { type: "button" },
                `step ${trace.step[other]}: ${trace.agentOf(other)}, ${inWords(trace.kindOf(other))} ${trace.actionOf(other)}`,
              );
              button.addEventListener("click", () => {
                this.show(other, true);
                this.list.focus();
              });
              return make("li", {}, button, ` (${link[2]} ${link[3]})`);
            }),
          ),
        );
      };
      ways(trace.from.get(place), 0, "Made from");
      ways(trace.to.get(place), 1, "Used in");
      return nodes;
    }

    pairDetail([left, right]) {
      const sides = [left < 0 ? null : [this.trace, left], right < 0 ? null : [this.against, right]],
        only = sides[0] || sides[1];
      const [trace, place] = only;
      const title = make("h3", {}, `${inWords(trace.kindOf(place))} `, make("code", {}, trace.actionOf(place)));
      const broken = trace.violations.filter((item) => item.step === trace.step[place]).map(violationNode);
      if (sides[0] === null || sides[1] === null) {
        const nodes = [
          title,
          ...broken,
          make("p", {}, `Only in the ${sides[0] === null ? "second" : "first"} trace, step ${trace.step[place]}.`),
        ];
        for (const [name, , draw] of sections(trace, place)) nodes.push(make("h4", {}, name), draw());
        return nodes;
      }
      const nodes = [
        title,
        ...broken,
        make(
          "div",
          { class: "sides" },
          ...sides.map(([side, at], which) =>
            make(
              "div",
              { class: "none" },
              `${which ? "second" : "first"}: step ${side.step[at]}, ${side.at[at].toLocaleString("en")} ms`,
            ),
          ),
        ),
      ];
      for (const item of differences(sections(...sides[0]), sections(...sides[1]))) {
        nodes.push(make("h4", {}, item.title));
        if (item.equal) nodes.push(make("div", { class: "equal" }, item.draw[0]()));
        else
          nodes.push(
            make(
              "div",
              { class: "sides differs" },
              ...item.draw.map((draw, which) =>
                make(
                  "div",
                  {},
                  make("span", { class: "which" }, which ? "second" : "first"),
                  draw ? draw() : make("span", { class: "none" }, "none"),
                ),
              ),
            ),
          );
      }
      return nodes;
    }

    // listening

    listen() {
      const on = (id, event, act) => $(id).addEventListener(event, act);
      on("v-trace", "change", () => this.open(Number($("v-trace").value)));
      on("v-against", "change", () =>
        this.open(this.trace.place, this.against ? null : this.stepNumber(), Number($("v-against").value)),
      );
      on("v-agent", "change", () => this.filter());
      on("v-kind", "change", () => this.filter());
      on("v-find", "input", () => this.filter());
      on("v-clear", "click", () => this.clear());
      on("v-axis", "change", () => this.redraw(true));
      on("v-help", "click", () => $("v-keys").showModal());
      on("v-strip", "click", (event) => this.show(this.stripAt(event.offsetX)));
      on("v-list", "scroll", () => this.redraw());
      on("v-rows", "click", (event) => {
        const row = event.target.closest(".row");
        if (row) this.select(Number(row.id.slice(4)));
      });
      on("viewer", "keydown", (event) => this.key(event));
      new ResizeObserver(() => this.redraw(true)).observe(this.list.parentElement);
      addEventListener("beforeprint", () => this.print());
      addEventListener("afterprint", () => $("v-print").replaceChildren());
      addEventListener("hashchange", () => this.fromHash());
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target,
        page = Math.max(1, Math.floor(this.list.clientHeight / this.high) - 2);
      if (event.key === "Escape") {
        this.list.focus();
        return event.preventDefault();
      }
      if (target.matches("input, select, textarea")) return;
      const moves = {
        ArrowDown: 1,
        j: 1,
        ArrowUp: -1,
        k: -1,
        PageDown: page,
        PageUp: -page,
        Home: -Infinity,
        End: Infinity,
      };
      const jumps = {
        v: [HARD | SOFT, "violation"],
        f: [FAULT, "fault"],
        g: [GOVERNED, "governance decision"],
        e: [ERROR, "error"],
      };
      const inList = target === this.list,
        key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if (key in moves && (inList || key.length === 1)) {
        const to = moves[key];
        this.select(Number.isFinite(to) ? this.selected + to : to < 0 ? 0 : this.view.length - 1);
      } else if (key in jumps) this.jump(jumps[key][0], event.shiftKey ? -1 : 1, jumps[key][1]);
      else if (key === "[" || key === "]") this.follow(key === "[" ? -1 : 1);
      else if (key === "Enter" && inList) $("v-step").focus();
      else if (key === "/") $("v-find").focus();
      else if (key === "c") this.clear();
      else if (key === "?") $("v-keys").showModal();
      else return;
      event.preventDefault();
    }

    /** Open the trace that the address names: `#trace=0&step=7&with=1` (`with=none`: alone). Returns whether it names one. */
    fromHash(scroll = true) {
      const asked = new URLSearchParams(location.hash.slice(1)),
        place = Number(asked.get("trace"));
      if (!asked.has("trace") || !this.traces[place]) return false;
      if (location.hash === this.jumped) return true;
      this.jumped = location.hash;
      const against = asked.has("with") ? Number(asked.get("with")) : this.partner(place);
      this.open(place, asked.has("step") ? Number(asked.get("step")) : null, this.traces[against] ? against : -1);
      if (scroll) {
        showPanel($("traces").closest(".panel"));
        if (tabs.length) scrollTo(0, 0);
        this.list.focus({ preventScroll: true });
      }
      return true;
    }

    /** The steps of the view as a table, for printing; with many steps, those around the selected one. */
    print() {
      const first = Math.max(0, Math.min(this.selected - PRINTED / 2, this.view.length - PRINTED)),
        some = this.view.slice(first, first + PRINTED);
      const rows = some.map((row) => {
        const place = this.against ? this.pairs[row][0] : row,
          trace = place < 0 ? this.against : this.trace,
          at = place < 0 ? this.pairs[row][1] : place;
        const [, got] = trace.facts(at),
          marks = trace.marksAt.get(at) || [];
        const cells = [
          String(trace.step[at]),
          trace.at[at].toLocaleString("en"),
          trace.agentOf(at),
          inWords(trace.kindOf(at)),
          `${trace.call(at)}${got ? ` → ${got}` : ""}`,
          marks.map(([kind, text]) => markWords(kind, text)).join("; "),
        ];
        return make(
          "tr",
          { class: trace.bits[at] & HARD ? "broken" : null },
          cells.map((cell) => make("td", {}, cell)),
        );
      });
      const head = make(
        "tr",
        {},
        ["step", "ms", "agent", "kind", "call → reply", "marks"].map((name) => make("th", {}, name)),
      );
      const cut =
        some.length < this.view.length
          ? `; ${plural(some.length, "step")} around the selected one of ${this.view.length.toLocaleString("en")}`
          : "";
      $("v-print").replaceChildren(
        make(
          "table",
          { class: "steps" },
          make("caption", {}, `${this.traces[this.trace.place].name}${cut}`),
          make("thead", {}, head),
          make("tbody", {}, rows),
        ),
      );
    }
  }

  const MARKS = { hard: "bad", soft: "warn", fault: "warn", rewrite: "gov", block: "gov" };
  const markWords = (kind, text) =>
    kind === "hard" || kind === "soft" ? `violates ${text}` : kind === "fault" ? `fault ${text}` : text;

  function violationNode(violation) {
    const node = make(
      "div",
      { class: `violation ${violation.severity}` },
      make("b", {}, violation.contract),
      ` (${violation.severity}, ${violation.stage})`,
      make("div", {}, violation.message),
    );
    if (violation.wanted) node.append(make("div", {}, `Wanted: ${violation.wanted}`));
    if (violation.repair) node.append(make("div", {}, `Repair: ${violation.repair}`));
    if (violation.region[0] !== violation.region[1])
      node.append(make("div", {}, `Window: steps ${violation.region[0]} to ${violation.region[1]}`));
    return node;
  }

  /** Facts of two steps side by side: [{title, equal, draw}]. "Reply" and "What the agent got" are one fact. */
  function differences(one, other) {
    const name = (title) => (title === "What the agent got" ? "Reply" : title);
    const titles = [...new Set([...one, ...other].map(([title]) => name(title)))];
    return titles.map((title) => {
      const sides = [one, other].map((side) => side.find((item) => name(item[0]) === title));
      const [left, right] = sides.map((side) => (side ? JSON.stringify(side[1]) : ""));
      return { title, equal: left === right, draw: sides.map((side) => (side ? side[2] : null)) };
    });
  }

  function agentColours() {
    const svg = drawn("svg", { width: 0, height: 0 }),
      dots = [];
    for (let at = 0; at < 8; at++) {
      const dot = drawn("circle", { class: `a${at}` });
      dots.push(dot);
      svg.append(dot);
    }
    document.body.append(svg);
    const found = dots.map((dot) => getComputedStyle(dot).fill);
    svg.remove();
    return found;
  }

  let viewer = null;
  setUpTables();
  setUpTabs();
  const traces = readData("trace-list") || [];
  if (traces.length) {
    viewer = new Viewer(traces);
    if (!viewer.fromHash()) viewer.open(0);
    viewer.settled = true;
  }
  setUpTheme();
})();
