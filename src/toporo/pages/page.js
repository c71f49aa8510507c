// Optional functions of a page: light and dark mode, highlighting a group or a line wherever it is, and tables that
// sort. Without this script the page shows everything.
(() => {
  "use strict";
  // Columns of tables that the card of a group shows first.
  const FIRST = /^(rows|size|prior|weight|loss|hops|edges away|effect|rmse|accuracy)/i;
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const make = (tag, props = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), props);
    element.append(...children);
    return element;
  };

  // ---- light and dark
  const root = document.documentElement, theme = document.getElementById("theme");
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("toporo-theme", value);
      return localStorage.getItem("toporo-theme");
    } catch { return null; }
  };
  let chosen = null;
  const paint = () => {
    const dark = (chosen || stored() || (wish.matches ? "dark" : "light")) === "dark";
    root.dataset.theme = dark ? "dark" : "light";
    theme.textContent = dark ? "☀ light" : "☾ dark";
    theme.setAttribute("aria-label", dark ? "Show the page in light colours" : "Show the page in dark colours");
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    stored(chosen);
    paint();
  });
  wish.addEventListener("change", paint);
  paint();

  // ---- a group or a line, wherever it is
  all(".hit > title").forEach((title) => title.remove());  // the card says more
  const card = document.getElementById("card");
  const places = new Map();
  for (const element of all("[data-key]")) {
    const key = element.dataset.key;
    if (!places.has(key)) places.set(key, []);
    places.get(key).push(element);
  }
  const facts = (key) => {
    const pairs = new Map();
    for (const row of (places.get(key) || []).filter((element) => element.tagName === "TR")) {
      const heads = all("thead th", row.closest("table")).map((head) => head.textContent.trim());
      [...row.cells].slice(1).forEach((cell, i) => {
        const text = cell.textContent.trim();
        if (text && text !== "–" && text.length < 60 && !pairs.has(heads[i + 1])) pairs.set(heads[i + 1], text);
      });
    }
    const rank = ([name]) => (FIRST.test(name) ? 0 : 1);
    return [...pairs].sort((a, b) => rank(a) - rank(b)).slice(0, 10);
  };
  let lit = null, pinned = null;
  const light = (key, x, y) => {
    if (lit !== key) {
      for (const element of places.get(lit) || []) element.classList.remove("lit");
      for (const element of places.get(key) || []) element.classList.add("lit");
      lit = key;
      card.replaceChildren();
      if (key !== null) {
        const list = make("dl");
        for (const [name, value] of facts(key)) list.append(make("dt", { textContent: name }), make("dd", { textContent: value }));
        card.append(make("b", { textContent: key }), list);
      }
    }
    card.hidden = key === null;
    if (key === null || x === undefined) return;
    const left = Math.min(x + 16, innerWidth - card.offsetWidth - 8);
    const top = y + 18 + card.offsetHeight > innerHeight ? y - card.offsetHeight - 14 : y + 18;
    card.style.transform = `translate(${Math.max(left, 8)}px, ${Math.max(top, 8)}px)`;
  };
  const keyOf = (event) => {
    const element = event.target.closest && event.target.closest("[data-key]");
    return element ? element.dataset.key : null;
  };
  document.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") light(keyOf(event) ?? pinned, event.clientX, event.clientY);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("button, a, summary")) return;
    const key = keyOf(event);
    pinned = key === pinned ? null : key;
    light(pinned, event.clientX, event.clientY);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { pinned = null; light(null); } });
  root.addEventListener("pointerleave", () => light(pinned));
  // Keyboard: a figure or a table is one tab stop, arrows go from group to group, or from line to line.
  for (const box of all(".plot, .scroll")) {
    box.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const marks = all("[data-key]", box).filter((mark) => mark.getClientRects().length);
      const keys = [...new Set(marks.map((mark) => mark.dataset.key))];
      if (event.target !== box || !step || !keys.length) return;
      event.preventDefault();
      const at = keys.indexOf(lit), next = keys[at < 0 ? (step > 0 ? 0 : keys.length - 1) : (at + step + keys.length) % keys.length];
      const mark = marks.find((each) => each.dataset.key === next);
      mark.scrollIntoView({ block: "nearest", inline: "nearest" });
      const where = mark.getBoundingClientRect();
      light(next, Math.min(where.right, innerWidth - 40), where.top);
    });
    box.addEventListener("blur", () => light(pinned));
  }

  // ---- tables
  const NUMBER = /^[<>≤≥≈]?\s*([−-]?[\d,]*\.?\d+(?:e[+−-]?\d+)?)/i;
  const value = (text) => {
    const clean = text.trim();
    if (clean === "∞" || clean === "no path") return Infinity;
    const number = clean.match(NUMBER);
    return number ? Number(number[1].replaceAll(",", "").replaceAll("−", "-")) : NaN;
  };
  const compare = (a, b) => {
    const x = value(a), y = value(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0], rows = [...body.rows], heads = all("thead th", table);
    if (rows.length < 2) continue;
    heads.forEach((head, i) => {
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const down = before ? before === "ascending" : rows.some((row) => !Number.isNaN(value(row.cells[i].textContent)));
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...[...rows].sort((a, b) => {
          const [x, y] = [a.cells[i].textContent, b.cells[i].textContent];
          const missing = Number.isNaN(value(x)) - Number.isNaN(value(y));
          return missing || (down ? -1 : 1) * compare(x, y);
        }));
      });
    });
  }

  // ---- on paper everything is open
  addEventListener("beforeprint", () => all("details").forEach((fold) => { fold.open = true; }));
})();
