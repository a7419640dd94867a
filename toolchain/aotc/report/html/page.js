"use strict";
(() => {
  const W = 168, H = 40, GAPX = 22, GAPY = 30, HEAD = 34, PAD = 8;
  const zooms = new Map();
  const all = (root, what) => Array.from(root.querySelectorAll(what));
  const kids = (root, what) => Array.from(root.children).filter((e) => e.matches(what));
  const num = (e, name) => Number(e.getAttribute(name));
  const at = (e, values) => { for (const key in values) e.setAttribute(key, values[key]); };

  // Makes room in a level for what is open in it: each layer grows about its open things, so that
  // what stands above one another stays there.
  function arrange(level) {
    const things = kids(level, ".node, .group, .port");
    const layers = Array.from({ length: num(level, "data-n") }, () => ({ h: H, open: [] }));
    for (const t of things) {
      t.l = num(t, "data-l"); t.x0 = num(t, "data-x");
      t.w = W; t.h = t.matches(".port") ? num(t, "data-h") : H;
      if (t.matches(".open")) {
        const inner = arrange(kids(t, ".level")[0]);
        t.w = Math.max(W, inner.w + 2 * PAD); t.h = inner.h + HEAD; t.inner = inner;
        layers[t.l].open.push(t);
      }
      layers[t.l].h = Math.max(layers[t.l].h, t.h);
    }
    let y = GAPY;
    for (const layer of layers) { layer.y = y + layer.h / 2; y += layer.h + GAPY; }
    const place = (l, x) => {
      let moved = 0, total = 0;
      for (const t of layers[l].open) {
        const grown = t.w - W;
        total += grown;
        if (Math.abs(t.x0 - x) < 0.6) moved += grown / 2; else if (t.x0 < x) moved += grown;
      }
      return x + moved - total / 2;
    };
    let left = Infinity, right = -Infinity;
    for (const t of things) {
      t.cx = place(t.l, t.x0); t.cy = layers[t.l].y;
      left = Math.min(left, t.cx - t.w / 2); right = Math.max(right, t.cx + t.w / 2);
    }
    const routes = all(level, ":scope > .edge, :scope > .e > .edge").map((e) => {
      const points = (e.getAttribute("data-t") || "").split(" ").filter(Boolean).map((text) => {
        const [x, l] = text.split(",").map(Number);
        const found = { x: place(l, x), l };
        left = Math.min(left, found.x); right = Math.max(right, found.x);
        return found;
      });
      return [e, points];
    });
    const shift = GAPX - left;
    for (const t of things) {
      t.cx += shift;
      t.setAttribute("transform", `translate(${t.cx.toFixed(1)} ${t.cy.toFixed(1)})`);
      if (t.matches(".group")) shape(t);
    }
    const byPlace = new Map();
    for (const t of things) byPlace.set(t.getAttribute("data-i"), t);
    for (const [e, points] of routes) {
      const a = byPlace.get(e.getAttribute("data-s")), b = byPlace.get(e.getAttribute("data-e"));
      let x = a.cx, from = a.cy + a.h / 2, d = `M${x.toFixed(1)} ${from.toFixed(1)}`;
      const bend = (tx, ty) => {
        const m = (from + ty) / 2;
        d += `C${x.toFixed(1)} ${m.toFixed(1)} ${tx.toFixed(1)} ${m.toFixed(1)} ${tx.toFixed(1)} ${ty.toFixed(1)}`;
        x = tx; from = ty;
      };
      const middle = Math.floor((points.length + 1) / 2);
      let label = [(a.cx + b.cx) / 2, (a.cy + b.cy) / 2];
      points.forEach((p, i) => {
        bend(p.x + shift, layers[p.l].y - layers[p.l].h / 2);
        from += layers[p.l].h; d += `V${from.toFixed(1)}`;
        if (i + 1 === middle) label = [x, layers[p.l].y];
      });
      bend(b.cx, b.cy - b.h / 2);
      if (!points.length) label[1] = (a.cy + a.h / 2 + b.cy - b.h / 2) / 2;
      e.setAttribute("d", d);
      const text = e.parentNode.querySelector(":scope > .bytes");
      if (text) at(text, { x: label[0] + 4, y: label[1] + 4 });
    }
    return { w: right - left + 2 * GAPX, h: y };
  }

  function shape(group) {
    const open = group.matches(".open"), w = group.w, h = group.h;
    at(kids(group, ".box")[0], { x: -w / 2, y: -h / 2, width: w, height: h });
    const [op, nm, sign] = [".op", ".nm", ".fold"].map((what) => kids(group, what)[0]);
    at(op, { y: open ? 16 - h / 2 : -3 });
    at(nm, { y: open ? 29 - h / 2 : 13 });
    at(sign, { x: 12 - w / 2, y: open ? 18 - h / 2 : 5 });
    for (const stub of kids(group, ".stub")) {
      stub.setAttribute("transform", `translate(0 ${(stub.matches(".in") ? -1 : 1) * (h - H) / 2})`);
    }
    sign.textContent = open ? "\u25be" : "\u25b8";
    const inside = kids(group, ".level")[0];
    if (open) {
      inside.setAttribute("transform", `translate(${-group.inner.w / 2} ${HEAD - h / 2})`);
      inside.removeAttribute("display"); inside.removeAttribute("visibility");
    } else { at(inside, { display: "none", visibility: "hidden" }); }
  }

  function draw(svg) {
    const size = arrange(kids(svg, ".level")[0]);
    svg.setAttribute("viewBox", `0 0 ${size.w} ${size.h}`);
    svg.size = size;
    scale(svg, zooms.get(svg) || 1);
  }

  function scale(svg, zoom) {
    zooms.set(svg, zoom);
    at(svg, { width: Math.round(svg.size.w * zoom), height: Math.round(svg.size.h * zoom) });
  }

  // A wide graph is made smaller at first, and its middle shown.
  function frame(svg) {
    const room = svg.parentNode.clientWidth - 12;
    if (room <= 0) return;
    scale(svg, Math.max(0.5, Math.min(1, room / svg.size.w)));
    const port = svg.querySelector(".port, .node, .group");
    if (port) svg.parentNode.scrollLeft = port.cx * zooms.get(svg) - room / 2;
    svg.framed = true;
  }

  function setOpen(group, open) {
    group.classList.toggle("open", open);
    group.setAttribute("aria-expanded", String(open));
  }

  const shownSvg = () => document.querySelector(".variant:not([hidden]) svg.graph");
  const visible = (svg) => all(svg, "[role=treeitem]").filter((e) => {
    for (let up = e.parentNode.closest(".group"); up; up = up.parentNode.closest(".group")) {
      if (!up.matches(".open")) return false;
    }
    return true;
  });

  function focusOn(item) {
    const svg = item.closest("svg.graph");
    for (const other of all(svg, "[tabindex='0']")) other.setAttribute("tabindex", "-1");
    item.setAttribute("tabindex", "0");
    item.focus({ preventScroll: true });
    kids(item, ".box")[0].scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function toggle(group) {
    setOpen(group, !group.matches(".open"));
    draw(group.closest("svg.graph"));
    focusOn(group);
    tell(group);
  }

  function tell(item) {
    const peer = document.getElementById(item.getAttribute("data-peer"));
    if (peer) showPeer(item, peer);
    const panel = item.closest(".variant, .side")?.querySelector(".detail");
    if (!panel) return;
    panel.replaceChildren();
    const title = document.createElement("h3");
    panel.append(title);
    const list = document.createElement("dl");
    const say = (name, ...content) => {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name; dd.append(...content);
      if (dd.textContent) list.append(dt, dd);
    };
    // A copy of a cell, with the places where its words may be broken.
    const copied = (cell) => Array.from(cell.cloneNode(true).childNodes);
    const row = document.getElementById(item.id.replace("-n", "-r"));
    for (const old of all(document, "tr.chosen")) old.classList.remove("chosen");
    if (item.matches(".node") && row) {
      row.classList.add("chosen");
      const head = all(row.closest("table"), "th");
      title.append(...copied(row.cells[1]));
      Array.from(row.cells).forEach((cell, i) => say(head[i].textContent, ...copied(cell)));
    } else {
      title.textContent = kids(item, ".op")[0].textContent;
      say("what", item.getAttribute("aria-label"));
      say("to unfold or fold", "click, or press Enter");
    }
    panel.append(list);
  }

  function mark(item) {
    for (const old of all(item.closest("svg.graph"), ".hit")) old.classList.remove("hit");
    item.classList.add("hit");
  }

  function unfoldTo(item) {
    for (let up = item.parentNode.closest(".group"); up; up = up.parentNode.closest(".group")) setOpen(up, true);
    draw(item.closest("svg.graph"));
  }

  // The same node on the other side, in the middle of its own frame; the page stays where it is.
  function showPeer(item, peer) {
    unfoldTo(peer);
    mark(item);
    mark(peer);
    const frame = peer.closest(".canvas"), box = kids(peer, ".box")[0].getBoundingClientRect();
    const around = frame.getBoundingClientRect();
    frame.scrollLeft += box.left + box.width / 2 - around.left - around.width / 2;
    frame.scrollTop += box.top + box.height / 2 - around.top - around.height / 2;
  }

  function reveal(item) {
    unfoldTo(item);
    mark(item);
    tell(item);
    focusOn(item);
    kids(item, ".box")[0].scrollIntoView({ block: "center", inline: "center" });
  }

  document.addEventListener("click", (event) => {
    const item = event.target.closest && event.target.closest("svg.graph [role=treeitem]");
    if (item) { if (item.matches(".group")) toggle(item); else { tell(item); focusOn(item); } }
  });

  document.addEventListener("keydown", (event) => {
    const item = event.target.closest && event.target.closest("svg.graph [role=treeitem]");
    if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
    const svg = item.closest("svg.graph"), items = visible(svg), place = items.indexOf(item);
    const up = item.parentNode.closest(".group"), open = item.matches(".open");
    const go = (to) => { if (to) { focusOn(to); tell(to); } };
    switch (event.key) {
      case "Enter": case " ": if (item.matches(".group")) toggle(item); else tell(item); break;
      case "ArrowDown": go(items[place + 1]); break;
      case "ArrowUp": go(items[place - 1]); break;
      case "ArrowRight": if (item.matches(".group") && !open) toggle(item); else go(items[place + 1]); break;
      case "ArrowLeft": if (open) toggle(item); else go(up); break;
      case "Escape": if (up) { setOpen(up, false); draw(svg); go(up); } break;
      case "Home": go(items[0]); break;
      case "End": go(items[items.length - 1]); break;
      default: return;
    }
    event.preventDefault();
  });

  for (const button of all(document, "[data-do]")) {
    button.addEventListener("click", () => {
      const scope = button.closest(".side");
      const svg = scope ? scope.querySelector("svg.graph") : shownSvg();
      if (!svg) return;
      const what = button.getAttribute("data-do"), zoom = zooms.get(svg) || 1;
      if (what === "in") scale(svg, Math.min(zoom * 1.25, 4));
      if (what === "out") scale(svg, Math.max(zoom / 1.25, 0.05));
      if (what === "fit") scale(svg, Math.min(1.5, (svg.parentNode.clientWidth - 12) / svg.size.w));
      if (what === "open" || what === "close") {
        for (const group of all(svg, ".group")) setOpen(group, what === "open");
        draw(svg);
      }
    });
  }

  const choice = document.getElementById("variant");
  const choose = (id) => {
    for (const figure of all(document, ".variant")) figure.hidden = figure.id !== id;
    choice.value = id;
    const svg = shownSvg();
    if (svg && !svg.framed) frame(svg);
  };
  if (choice) choice.addEventListener("change", () => { choose(choice.value); search(); });

  const find = document.getElementById("find"), found = document.getElementById("found");
  const said = document.getElementById("said");
  function search() {
    if (!find) return [];
    found.replaceChildren();
    const wanted = find.value.trim().toLowerCase();
    if (!wanted) { said.textContent = ""; return []; }
    const rows = all(document, ".variant:not([hidden]) table.nodes tbody tr").filter((row) =>
      [0, 1, 2].some((i) => row.cells[i].textContent.toLowerCase().includes(wanted)));
    said.textContent = `${rows.length} node${rows.length === 1 ? "" : "s"} found` +
      (rows.length > 30 ? ", the first 30 shown" : "");
    const items = rows.map((row) => document.getElementById(row.id.replace("-r", "-n")));
    rows.slice(0, 30).forEach((row, i) => {
      const li = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.textContent = `${row.cells[1].textContent} ${row.cells[0].textContent}`.slice(0, 80);
      button.addEventListener("click", () => reveal(items[i]));
      li.append(button); found.append(li);
    });
    return items;
  }
  if (find) {
    find.addEventListener("input", search);
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { const items = search(); if (items.length) reveal(items[0]); }
    });
  }

  // A line is shown with what it is part of: the lines above it that are indented less.
  const lines = document.getElementById("lines");
  const texts = new Map();
  if (lines) lines.addEventListener("input", () => {
    const wanted = lines.value.trim().toLowerCase();
    let count = 0;
    for (const pre of all(document, "#manifest pre")) {
      if (!texts.has(pre)) texts.set(pre, pre.textContent);
      const text = texts.get(pre);
      if (!wanted) { pre.textContent = text; pre.parentNode.open = false; continue; }
      const split = text.split("\n"), kept = new Set();
      split.forEach((line, i) => {
        if (!line.toLowerCase().includes(wanted)) return;
        count += 1;
        kept.add(i);
        let depth = line.search(/\S/);
        for (let j = i - 1; j >= 0 && depth > 0; j -= 1) {
          const own = split[j].search(/\S/);
          if (own < depth) { kept.add(j); depth = own; }
        }
      });
      pre.textContent = split.filter((_, i) => kept.has(i)).join("\n");
      pre.parentNode.open = kept.size > 0;
    }
    document.getElementById("counted").textContent = wanted ? `${count} lines` : "";
  });

  for (const svg of all(document, "svg.graph")) {
    // Of a small graph more is shown at once, level by level as far as a level fits whole.
    for (let more = true; more;) {
      const next = visible(svg).filter((e) => e.matches(".group:not(.open)"));
      const inner = next.flatMap((e) => kids(kids(e, ".level")[0], ".node, .group"));
      const count = visible(svg).length;
      more = next.length > 0 && (count === 1 || count + inner.length <= 24);
      if (more) for (const group of next) setOpen(group, true);
    }
    draw(svg);
    frame(svg);
    const first = svg.querySelector("[role=treeitem]");
    if (first) first.setAttribute("tabindex", "0");
  }
})();
