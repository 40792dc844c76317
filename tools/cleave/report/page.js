// Draws the data of a report. All texts are set as text, never as markup.
"use strict";
const root = document.documentElement;
root.dataset.errors = 0;
addEventListener("error", () => { root.dataset.errors = 1 + Number(root.dataset.errors); });

const data = JSON.parse(document.getElementById("data").textContent);
const head = data.head, lines = data.timeline;
const kinds = ["forward", "backward", "weight gradient", "update", "collective", "message", "other"];
const parts = ["parameters", "gradients", "optimizer states", "activations", "inputs", "workspace", "attention scores", "copies and others"];
const partColours = [0, 1, 2, 5, 6, 3, 4, 7];
const step = head.step_ms / lines.tick_ms; // ticks of the iteration
let colours = {};

// ---- texts and elements

function el(tag, properties, ...children) {
  const made = typeof tag === "string" ? document.createElement(tag) : tag;
  for (const [name, value] of Object.entries(properties || {}))
    if (name === "class") made.className = value;
    else if (name === "style") for (const [key, text] of Object.entries(value)) made.style.setProperty(key, text);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  made.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
  return made;
}
const digits = (value, count = 3) => value === 0 ? "0" : Math.abs(value) >= 10 ** count ? Math.round(value).toLocaleString("en-US")
  : String(Number(value.toPrecision(count)));
const time = ms => ms === 0 ? "0" : ms >= 1000 ? digits(ms / 1000, 4) + " s" : ms >= 1 ? digits(ms, 4) + " ms" : digits(ms * 1000) + " \u00b5s";
const exact = ms => ms >= 1000 ? (ms / 1000).toFixed(6) + " s" : ms.toFixed(4) + " ms";
const bytes = count => count >= 2 ** 30 ? digits(count / 2 ** 30) + " GiB" : count >= 2 ** 20 ? digits(count / 2 ** 20) + " MiB"
  : count >= 1024 ? digits(count / 1024) + " KiB" : count + " B";
const large = count => count >= 1e12 ? digits(count / 1e12) + " T" : count >= 1e9 ? digits(count / 1e9) + " G" : count >= 1e6
  ? digits(count / 1e6) + " M" : count.toLocaleString("en-US");
const percent = share => share === 0 ? "0%" : (100 * share).toFixed(share < 0.1 ? 1 : 0) + "%";
const counted = (count, unit) => count.toLocaleString("en-US") + " " + unit + (count === 1 ? "" : /(ch|ss)$/.test(unit) ? "es" : "s");
const classText = one => "rank " + one.rank + (one.ranks > 1 ? " (\u00d7" + one.ranks + ")" : "");
const stagesText = one => (one.stages.length > 1 ? "stages " : "stage ") + one.stages.join(", ");
const hue = stage => Math.round(210 + stage * (data.stages.length > 6 ? 360 / data.stages.length : 67)) % 360;
const paint = index => "var(--k" + index + ")";
const key = (colour, text) => el("span", {class: "key"}, el("i", {style: {background: colour}}), text);

function table(heads, rows) { // heads: [text, is a number]
  const cells = (tag, row) => el("tr", {}, ...row.map((cell, i) =>
    el(tag, {class: heads[i][1] ? "num" : "path", ...(tag === "th" ? {scope: "col"} : {})}, cell)));
  return el("div", {class: "scroll"}, el("table", {}, el("thead", {}, cells("th", heads.map(one => one[0]))),
                                        el("tbody", {}, ...rows.map(row => cells("td", row)))));
}

function section(id, title, about, ...children) {
  document.getElementById("main").append(el("section", {id}, el("h2", {}, title), about ? el("p", {}, about) : null, ...children));
  document.getElementById("sections").append(el("a", {href: "#" + id}, title));
}

// ---- themes

function setTheme(theme) {
  root.dataset.theme = theme;
  const style = getComputedStyle(root);
  for (const name of ["paper", "panel", "ink", "dim", "line", "accent", "bad", ...[0, 1, 2, 3, 4, 5, 6, 7].map(i => "k" + i)])
    colours[name] = style.getPropertyValue("--" + name).trim();
  draw();
}
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let chosen = null; // by the button
const wanted = () => chosen || (prefersDark.matches ? "dark" : "light");
prefersDark.addEventListener("change", () => setTheme(wanted()));
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach(one => { one.open = true; });
  setTheme("light");
});
addEventListener("afterprint", () => {
  closed.forEach(one => { one.open = false; });
  setTheme(wanted());
});

// ---- the head

function drawHead() {
  document.title = head.model + ": cleave report";
  const tile = (name, value, more) => el("div", {class: "tile"}, el("small", {}, name), el("b", {}, value), el("small", {}, more || ""));
  const theme = el("button", {id: "theme", onclick: () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    setTheme(chosen);
  }}, "Light / dark");
  const choices = head.choices ? ["ZeRO " + head.choices.zero, head.choices.sequence ? "sequence parallel" : "",
                                  "recomputation: " + head.choices.recompute] : [];
  const facts = [head.mesh, (head.schedule || "no schedule") + ", " + counted(head.microbatches, "microbatch"), "batch " + head.batch,
                 large(head.parameters) + " parameters", head.precision, ...choices, head.cluster, "plan " + head.plan_hash.slice(0, 12)];
  const search = head.search, tiles = [
    tile("predicted step", time(head.step_ms), digits(head.flops_per_device / 1e12) + " TFLOP/s a device"),
    tile("samples/s", digits(head.samples_per_s, 4), "batch of " + head.batch),
    tile("memory peak", bytes(head.peak_bytes), "rank " + head.peak_rank + ", of " + bytes(head.capacity_bytes)),
    tile("bubble", percent(head.bubble_fraction), "of the pipeline")];
  if (search) tiles.push(tile("search", "gap " + percent(search.gap), "no plan is estimated below " + time(search.lower_bound_ms)));
  document.getElementById("head").append(...[
    el("div", {class: "bar top"}, el("div", {}, el("h1", {}, head.model), el("div", {class: "dim"}, facts.filter(Boolean).join(" \u00b7 "))), theme),
    el("div", {class: "tiles"}, ...tiles),
    head.memory_problem ? el("p", {class: "bad"}, "Does not fit: " + head.memory_problem) : null,
    search ? el("p", {}, "The search considered " + counted(search.total, "plan") + ": " + search.evaluated.toLocaleString("en-US") +
      " estimated, " + search.by_bound.toLocaleString("en-US") + " worse by their bounds, " + search.by_memory.toLocaleString("en-US") +
      " without memory, " + search.refused.toLocaleString("en-US") + " refused; " + search.compiled + " compiled" +
      (search.stopped_early ? "; it stopped early" : "") + ". The operations alone take " + time(search.floor_ms) + ".") : null,
  ].filter(Boolean));
}

// ---- the timeline

const view = {from: 0, to: Math.max(step, 1)};
const perPage = 12; // classes
const shown = {first: 0, row: 0, event: -1};
let canvas, memory, memoryClass = 0, layout = {rows: [], left: 80, top: 20, height: 0};

function eventOf(name, microbatch, begin, length) {
  const [what, pass, source, kind] = lines.names[name];
  return {what, pass, source, kind, microbatch, begin, end: begin + length, steps: 1, busy: length, like: null};
}

/// The events of a stream; begins and ends ascend.
function decoded(stream) {
  const out = {name: stream.name.replace("sends to", "\u2192").replace("receives from", "\u2190"), events: []};
  let at = 0;
  for (const [name, microbatch, gap, length, steps, busy, like] of stream.events) {
    const event = eventOf(name, microbatch, at + gap, length);
    if (steps) Object.assign(event, {steps, busy, like: lines.passes[like]});
    out.events.push(event);
    at = event.end;
  }
  return out;
}

/// The steps of a pass, if it is drawn wide enough to tell them apart: as in the shortest pass of its kind.
function stepsOf(event) {
  const wide = (event.end - event.begin) / (view.to - view.from) * (canvas.clientWidth - layout.left);
  if (!event.like || wide < Math.max(60, 2.5 * event.steps)) return [event];
  const all = event.like.reduce((sum, one) => sum + one[1] + one[2], 0), scale = (event.end - event.begin) / Math.max(all, 1);
  let at = event.begin;
  return event.like.map(([name, gap, length]) => {
    const step = eventOf(name, event.microbatch, at + gap * scale, length * scale);
    at = step.end;
    return step;
  });
}
const streams = lines.classes.map(one => one.streams.map(decoded));

function arrange() {
  layout.rows = [];
  layout.left = canvas.clientWidth < 560 ? 70 : 96;
  let y = layout.top;
  data.classes.slice(shown.first, shown.first + perPage).forEach((one, i) => {
    layout.rows.push({title: classText(one) + " \u00b7 " + stagesText(one), y, height: 17});
    y += 17;
    for (const stream of streams[shown.first + i] || []) {
      const height = stream.name === "computes" ? 20 : 12;
      layout.rows.push({stream, owner: one, y, height});
      y += height + 1;
    }
    y += 5;
  });
  layout.height = y + 4;
}

function prepared(of, height) {
  const ratio = devicePixelRatio || 1, width = Math.max(of.clientWidth, 120);
  of.style.height = height + "px";
  of.width = Math.round(width * ratio);
  of.height = Math.round(height * ratio);
  const pen = of.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return [pen, width];
}

const xOf = (tick, width) => layout.left + (tick - view.from) / (view.to - view.from) * (width - layout.left);
const tickAt = (x, width) => view.from + (x - layout.left) / (width - layout.left) * (view.to - view.from);

function drawAxis(pen, width, height) {
  const span = (view.to - view.from) * lines.tick_ms, rough = span / Math.max(2, (width - layout.left) / 110);
  const power = 10 ** Math.floor(Math.log10(rough)), unit = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  const [scale, name] = view.to * lines.tick_ms >= 1000 ? [1000, " s"] : view.to * lines.tick_ms >= 1 ? [1, " ms"] : [0.001, " \u00b5s"];
  const decimals = Math.max(0, Math.ceil(-Math.log10(unit / scale) - 1e-9));
  for (let at = Math.ceil(view.from * lines.tick_ms / unit - 1e-9) * unit; at <= view.to * lines.tick_ms + unit * 1e-6; at += unit) {
    const x = xOf(at / lines.tick_ms, width), text = (at / scale).toFixed(decimals) + name;
    pen.fillStyle = colours.line;
    pen.fillRect(x, layout.top - 5, 1, height);
    pen.fillStyle = colours.dim;
    const wide = pen.measureText(text).width;
    if (x + 3 + wide < width) pen.fillText(text, x + 3, 9);
  }
}

/// The first event of a stream that ends after `tick`.
function firstAfter(stream, tick) {
  let low = 0, high = stream.events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (stream.events[middle].end > tick) high = middle; else low = middle + 1;
  }
  return low;
}

function shortName(event) {
  const microbatch = event.microbatch < 0 ? "" : " " + event.microbatch;
  return event.steps > 1 ? event.what + microbatch : event.what.replace(/^(\w+) \S*\.(\w*[a-z]\w*(\.\d+)?)$/i, "$1 $2");
}

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const cut = text.slice(0, Math.max(0, Math.floor(text.length * width / pen.measureText(text).width) - 1));
  return cut.length > 2 ? cut + "\u2026" : "";
}

function drawStream(pen, width, row) {
  pen.fillStyle = colours.dim;
  pen.fillText(fitted(pen, row.stream.name, layout.left - 10), 6, row.y + row.height / 2);
  pen.save();
  pen.beginPath();
  pen.rect(layout.left, row.y, width - layout.left, row.height);
  pen.clip();
  let drawn = -1, drawnKind = -1;
  const draws = event => {
    if (event.end < view.from || event.begin > view.to) return;
    const x = xOf(event.begin, width), end = xOf(event.end, width);
    if (end < drawn + 0.4 && event.kind === drawnKind) return; // under what is drawn
    const wide = Math.max(end - x - (end - x > 3 ? 0.6 : 0), 0.6);
    pen.fillStyle = colours["k" + event.kind];
    const share = row.height < 15 ? event.busy / Math.max(1, event.end - event.begin) : 1;
    if (share < 0.98) { // a pale bar, full in the share of the time that its steps take
      pen.globalAlpha = 0.35;
      pen.fillRect(x, row.y, wide, row.height);
      pen.globalAlpha = 1;
    }
    pen.fillRect(x, row.y + row.height * (1 - Math.min(share, 1)), wide, row.height * Math.min(share, 1));
    drawn = x + wide;
    drawnKind = event.kind;
    const left = Math.max(x, layout.left), room = Math.min(end, width) - left - 6;
    if (row.height > 14 && room > 9) {
      let text = fitted(pen, shortName(event), room);
      if (!text && event.microbatch >= 0 && event.steps > 1) text = String(event.microbatch);
      pen.fillStyle = root.dataset.theme === "dark" || [1, 3, 5, 6].includes(event.kind) ? "#0d1014" : "#fff";
      if (pen.measureText(text).width <= room) pen.fillText(text, left + 3, row.y + row.height / 2 + 0.5);
    }
  };
  for (let i = firstAfter(row.stream, view.from); i < row.stream.events.length && row.stream.events[i].begin <= view.to; ++i)
    stepsOf(row.stream.events[i]).forEach(draws);
  const at = layout.rows[shown.row] === row && row.stream.events[shown.event];
  if (at) {
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    pen.strokeRect(xOf(at.begin, width) + 1, row.y + 1, Math.max(xOf(at.end, width) - xOf(at.begin, width) - 2, 2), row.height - 2);
  }
  pen.restore();
}

function drawTimeline() {
  arrange();
  const [pen, width] = prepared(canvas, layout.height);
  drawAxis(pen, width, layout.height);
  for (const row of layout.rows)
    if (row.stream) drawStream(pen, width, row);
    else {
      pen.fillStyle = colours.ink;
      pen.font = "600 11px system-ui, sans-serif";
      const text = fitted(pen, row.title, width - 20), wide = pen.measureText(text).width;
      pen.fillStyle = colours.paper;
      pen.fillRect(4, row.y, wide + 6, row.height);
      pen.fillStyle = colours.ink;
      pen.fillText(text, 6, row.y + row.height / 2);
      pen.font = "11px system-ui, sans-serif";
    }
}

// ---- memory over time

function drawMemory() {
  const one = data.classes[memoryClass], points = lines.classes[memoryClass].memory, height = 220, bottom = height - 8;
  const [pen, width] = prepared(memory, height);
  drawAxis(pen, width, height);
  const fixed = parts.filter(part => part !== "activations"), all = parts.reduce((sum, part) => sum + one.memory[part], 0);
  const usable = one.capacity_bytes - one.reserved_bytes;
  const most = Math.max(Math.min(usable * 1.05, all * 1.3), all * 1.08, 1), y = value => bottom - value / most * (bottom - layout.top);
  pen.save();
  pen.beginPath();
  pen.rect(layout.left, 0, width - layout.left, height);
  pen.clip();
  let below = 0;
  for (const part of fixed) {
    pen.fillStyle = colours["k" + partColours[parts.indexOf(part)]];
    pen.fillRect(layout.left, y(below + one.memory[part]), width, y(below) - y(below + one.memory[part]));
    below += one.memory[part];
  }
  points.forEach(([at, kept, running], i) => {
    const x = xOf(at, width), end = xOf(i + 1 < points.length ? points[i + 1][0] : step, width);
    if (end < layout.left || x > width) return;
    pen.fillStyle = colours.k5;
    pen.fillRect(x, y(below + kept), end - x + 0.5, y(below) - y(below + kept));
    pen.globalAlpha = 0.5;
    pen.fillRect(x, y(below + kept + running), end - x + 0.5, y(below + kept) - y(below + kept + running));
    pen.globalAlpha = 1;
  });
  const mark = (value, text, colour) => {
    pen.fillStyle = colour;
    pen.fillRect(layout.left, y(value) - 1, width, 1.5);
    const wide = pen.measureText(text).width;
    pen.fillStyle = colours.paper;
    pen.fillRect(width - wide - 10, y(value) - 15, wide + 8, 13);
    pen.fillStyle = colour;
    pen.fillText(text, width - wide - 6, y(value) - 8);
  };
  mark(all, "allocated " + bytes(all), colours.ink);
  const room = bytes(usable) + " usable of " + bytes(one.capacity_bytes);
  if (usable <= most) mark(usable, room, colours.bad);
  pen.restore();
  pen.fillStyle = colours.dim;
  for (let i = 0; i <= 4; ++i) pen.fillText(bytes(Math.round(most * i / 4)), 4, Math.max(y(most * i / 4), layout.top + 4));
  document.getElementById("room").textContent = usable > most ? "Device: " + room + " (above the chart)." : "";
}

function draw() {
  if (!canvas || !colours.paper) return;
  drawTimeline();
  drawMemory();
}

// ---- interaction

function move(from, to) {
  const most = Math.max(step, 1), length = Math.min(Math.max(to - from, 4), most);
  view.from = Math.min(Math.max(from, 0), most - length);
  view.to = view.from + length;
  draw();
}
function zoom(factor, centre) {
  const at = centre === undefined ? (view.from + view.to) / 2 : centre;
  move(at - (at - view.from) * factor, at + (view.to - at) * factor);
}
const pan = share => move(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

const tip = document.getElementById("tip");
function showTip(event, owner, x, y) {
  const share = event.busy / Math.max(1, event.end - event.begin);
  const rows = [["b", event.what], ["div", kinds[event.kind] + (event.pass ? ", pass " + event.pass : "")],
    ["div", event.microbatch < 0 ? "" : "microbatch " + event.microbatch], ["div", event.source],
    ["div", "begins " + exact(event.begin * lines.tick_ms) + ", takes " + time((event.end - event.begin) * lines.tick_ms)],
    ["div", event.steps > 1 ? counted(event.steps, "step") + (share < 0.995 ? ", busy " + percent(share) : "") : ""],
    ["div", classText(owner)]];
  tip.replaceChildren(...rows.filter(row => row[1]).map(([tag, text]) => el(tag, {}, text)));
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = (y + 18 + tip.offsetHeight > innerHeight ? Math.max(4, y - tip.offsetHeight - 10) : y + 18) + "px";
}

function eventAt(x, y) {
  const row = layout.rows.find(one => one.stream && y >= one.y && y < one.y + one.height);
  if (!row || x < layout.left) return null;
  const slack = 2 * (view.to - view.from) / (canvas.clientWidth - layout.left), tick = tickAt(x, canvas.clientWidth);
  const pass = row.stream.events[firstAfter(row.stream, tick - slack)];
  const event = pass && (stepsOf(pass).find(one => one.end >= tick - slack) || pass);
  return event && event.begin <= tick + slack ? {event, owner: row.owner} : null;
}

/// Selects an event of the selected row by keyboard.
function select(event) {
  const row = layout.rows[shown.row];
  if (!row || !row.stream || !row.stream.events.length) return;
  shown.event = Math.min(Math.max(event, 0), row.stream.events.length - 1);
  const at = row.stream.events[shown.event], length = view.to - view.from;
  if (at.begin < view.from || at.end > view.to && at.begin > view.to - length / 10) move(at.begin - length / 4, at.begin + length * 3 / 4);
  else draw();
  const box = canvas.getBoundingClientRect();
  showTip(at, row.owner, box.left + Math.max(xOf(at.begin, canvas.clientWidth), layout.left), box.top + row.y + row.height - 14);
  document.getElementById("said").textContent = tip.innerText.replace(/\n/g, ", ");
}
function selectRow(way) {
  let row = shown.row;
  do row += way; while (layout.rows[row] && !layout.rows[row].stream);
  if (layout.rows[row]) shown.row = row;
  if (layout.rows[shown.row].stream) select(firstAfter(layout.rows[shown.row].stream, view.from));
}

function onKey(event) {
  const keys = {"+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
    Home: () => move(0, step), ArrowDown: () => selectRow(1), ArrowUp: () => selectRow(-1), ".": () => select(shown.event + 1),
    ",": () => select(shown.event - 1), Escape: () => { tip.hidden = true; }};
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
}

function listen() {
  const fingers = new Map(); // pointers that are down: where they are, and the tick that each holds
  const across = event => event.clientX - canvas.getBoundingClientRect().left;
  const hold = () => fingers.forEach(one => { one.tick = tickAt(one.x, canvas.clientWidth); });
  canvas.addEventListener("wheel", event => {
    const before = [view.from, view.to];
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(Math.sign(event.deltaX || event.deltaY) * 0.1);
    else zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 240), tickAt(Math.max(across(event), layout.left), canvas.clientWidth));
    if (before[0] !== view.from || before[1] !== view.to) event.preventDefault(); // otherwise the page scrolls
  }, {passive: false});
  canvas.addEventListener("pointerdown", event => {
    fingers.set(event.pointerId, {x: across(event)});
    hold();
    try { canvas.setPointerCapture(event.pointerId); } catch { /* a made event has no pointer */ }
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => { fingers.delete(event.pointerId); hold(); });
  canvas.addEventListener("pointermove", event => {
    const x = across(event), finger = fingers.get(event.pointerId);
    if (finger) {
      finger.x = x;
      const [a, b] = fingers.values(), width = canvas.clientWidth;
      let each = (view.to - view.from) / (width - layout.left); // ticks of a pixel
      if (b && (b.tick - a.tick) * (b.x - a.x) > 0) each = (b.tick - a.tick) / (b.x - a.x);
      const from = a.tick - (a.x - layout.left) * each;
      move(from, from + (width - layout.left) * each);
    }
    const found = eventAt(x, event.clientY - canvas.getBoundingClientRect().top);
    if (found) showTip(found.event, found.owner, event.clientX, event.clientY); else tip.hidden = true;
  });
  for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, () => { tip.hidden = true; });
  canvas.addEventListener("keydown", onKey);
  new ResizeObserver(draw).observe(canvas.parentElement);
}

function timelineSection() {
  const left = lines.classes.filter(one => !one.streams.length).length;
  const used = new Set(lines.names.map(name => name[3]));
  canvas = el(document.getElementById("timeline-canvas"), {tabindex: 0, role: "img", "aria-describedby": "said",
    "aria-label": "Timeline of the iteration. Plus and minus zoom, left and right move, up and down choose a stream, comma and full stop an event."});
  const button = (text, name, act) => el("button", {onclick: act, "aria-label": name}, text);
  const pages = [];
  for (let first = 0; first < data.classes.length; first += perPage)
    pages.push(el("option", {value: first}, "classes " + (first + 1) + "\u2013" + Math.min(first + perPage, data.classes.length)));
  section("timeline", "Timeline", "One row of streams for each class of equal ranks." + (lines.merged
    ? " The steps that a pass has in a stream are one event; zoomed in, the steps of the shortest such pass stand for them."
    : "") + (left > 0 ? " The last " + counted(left, "class") + " are left out." : ""),
    el("div", {class: "bar"}, ...kinds.map((kind, i) => used.has(i) ? key(paint(i), kind) : null)),
    el("div", {class: "bar"}, button("+", "Zoom in", () => zoom(0.6)), button("\u2212", "Zoom out", () => zoom(1 / 0.6)),
      button("\u2190", "Earlier", () => pan(-0.25)), button("\u2192", "Later", () => pan(0.25)), button("All", "Whole iteration", () => move(0, step)),
      pages.length > 1 ? el("select", {"aria-label": "Classes of ranks", onchange: event => {
        Object.assign(shown, {first: Number(event.target.value), row: 0, event: -1});
        draw();
      }}, ...pages) : null,
      el("span", {class: "dim help"}, "wheel, two fingers or ", el("kbd", {}, "+"), " ", el("kbd", {}, "\u2212"), " zoom, drag or ", el("kbd", {}, "\u2190"), " ",
        el("kbd", {}, "\u2192"), " move, ", el("kbd", {}, "\u2191"), " ", el("kbd", {}, "\u2193"), " ", el("kbd", {}, ","), " ", el("kbd", {}, "."),
        " choose an event, ", el("kbd", {}, "Home"), " all")),
    el("div", {}, canvas), el("div", {id: "said", class: "visually", "aria-live": "polite"}));
}

// ---- the other sections

function stacked(values, whole) { // values: [share, colour, text]
  return el("div", {class: "stack"}, ...values.filter(one => one[0] > 0).map(([value, colour, text]) =>
    el("i", {title: text, style: {width: 100 * value / whole + "%", background: colour}})));
}

/// A table of classes of ranks, closed if it is long.
function classTable(heads, rows) {
  const made = table(heads, rows);
  return rows.length <= 8 ? made : el("details", {}, el("summary", {}, el("span", {}, "As a table")), made);
}

function memorySection() {
  memory = el(document.getElementById("memory-canvas"), {role: "img", "aria-label": "Memory of a rank over the iteration"});
  const some = parts.filter(part => data.classes.some(one => one.memory[part] > 0));
  const bars = el("div", {class: "rows"});
  for (const one of data.classes.slice(0, 40)) {
    const all = parts.reduce((sum, part) => sum + one.memory[part], 0), whole = Math.max(one.capacity_bytes, all + one.reserved_bytes);
    bars.append(el("span", {}, classText(one)), stacked([...parts.map((part, i) =>
      [one.memory[part], paint(partColours[i]), part + " " + bytes(one.memory[part])]),
      [whole - all - one.reserved_bytes, "transparent", "free"], [one.reserved_bytes, "var(--line)", "reserved " + bytes(one.reserved_bytes)]], whole),
      el("span", {class: "num" + (all + one.reserved_bytes > one.capacity_bytes ? " bad" : "")}, bytes(all) + " of " + bytes(one.capacity_bytes)));
  }
  section("memory", "Memory", "What is allocated for the whole run, and the activations over the iteration: kept for a later pass, and (lighter) of the "
    + "running pass. The chart follows the timeline's zoom.",
    el("div", {class: "bar"}, ...some.map(part => key(paint(partColours[parts.indexOf(part)]), part))),
    el("div", {class: "bar"}, data.classes.length > 1 ? el("label", {}, "Memory of ", el("select", {onchange: event => {
      memoryClass = Number(event.target.value);
      draw();
    }}, ...data.classes.map((one, i) => el("option", {value: i}, classText(one) + ", " + stagesText(one))))) : null,
      el("span", {id: "room", class: "dim"})),
    memory, el("h3", {}, "At the peak"), bars,
    classTable([["ranks", false], ...some.map(part => [part, true]), ["all", true]], data.classes.map(one =>
      [classText(one), ...some.map(part => bytes(one.memory[part])), bytes(parts.reduce((sum, part) => sum + one.memory[part], 0))])));
}

function timeSection() {
  const works = [...new Set(data.classes.flatMap(one => one.work.map(work => work[0])))];
  const colour = name => paint([0, 2, 5, 3, 7][works.indexOf(name) % 5]);
  const bars = el("div", {class: "rows"});
  for (const one of data.classes.slice(0, 40))
    bars.append(el("span", {}, classText(one)), stacked([...one.work.map(([name, ms]) => [ms, colour(name), name + " " + time(ms)]),
      [one.communication_ms, paint(4), "exposed communication " + time(one.communication_ms)],
      [one.idle_ms, "transparent", "idle " + time(one.idle_ms)]], Math.max(head.step_ms, 1e-9)),
      el("span", {class: "num"}, percent(one.busy_ms / Math.max(head.step_ms, 1e-9)) + " busy"));
  section("time", "Where the time goes", "Exposed communication is at times when the rank computes nothing; hidden communication is beside computation.",
    el("div", {class: "bar"}, ...works.map(name => key(colour(name), name)), key(paint(4), "exposed communication"), key("var(--panel)", "idle")),
    bars, classTable([["ranks", false], ["device", false], ...works.map(name => [name, true]), ["computing", true], ["exposed", true], ["hidden", true],
                 ["idle", true]], data.classes.map(one => [classText(one), one.device,
      ...works.map(name => time((one.work.find(work => work[0] === name) || [0, 0])[1])), time(one.busy_ms), time(one.communication_ms),
      time(one.hidden_ms), time(one.idle_ms)])));
}

function sparkline(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 " + values.length + " 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", "M0 100" + values.map((value, i) => "L" + i + " " + (100 - value) + "H" + (i + 1)).join("") + "V100Z");
  svg.append(path);
  return svg;
}

function meshSection() {
  const nodes = data.nodes.map(node => el("div", {class: "node"},
    el("h3", {title: node.nodes > 1 ? "nodes " + node.members : ""}, "node " + node.first + (node.nodes > 1 ? " (\u00d7" + node.nodes + ")" : "")),
    el("div", {class: "devices", style: {"--columns": Math.min(node.devices.length, 8)}}, ...node.devices.map(([rank, one]) => {
      const owner = data.classes[one];
      return el("div", {class: "device", style: {"--hue": hue(owner.stages[0])}, title: owner.device + ", " + stagesText(owner)}, String(rank),
                el("small", {}, "s" + owner.stages.join(",")));
    })),
    ...node.links.map(link => el("div", {class: "link", title: "busiest part " + Math.max(...link.percent) + "%"}, el("span", {}, link.name),
                                 sparkline(link.percent), el("span", {class: "num"}, percent(link.mean)))),
    node.omitted_links > 0 ? el("div", {class: "dim"}, counted(node.omitted_links, "further link") + " with less load") : null));
  section("mesh", "Mesh and stages", "Nodes with their devices and links: a device has its rank and its stage (s); a link its load over the iteration and the mean. "
    + "Nodes with equal ranks are one box; links with equal loads are one line.",
    table([["stage", false], ["layers", false], ["ranks", true], ["parameters", true], ["operations", true]], data.stages.map((stage, i) =>
      [el("span", {class: "key"}, el("i", {style: {"--hue": hue(i), background: "hsl(var(--hue) 55% var(--stage))"}}), String(i)), stage.layers,
       String(stage.ranks), large(stage.parameters), large(stage.flops) + "FLOP"])),
    el("div", {class: "nodes"}, ...nodes));
}

function moduleTree() {
  const top = {children: new Map(), row: null};
  for (const row of data.modules) {
    let at = top;
    for (const word of row.path ? row.path.split(".") : []) {
      if (!at.children.has(word)) at.children.set(word, {children: new Map(), row: null});
      at = at.children.get(word);
    }
    at.row = row;
  }
  return top;
}

function moduleSums(node) {
  node.share = node.row ? node.row.share : 0;
  node.elements = node.row ? node.row.parameters.reduce((sum, one) => sum + one[5], 0) : 0;
  node.count = node.row ? node.row.collectives.reduce((sum, one) => sum + one[2], 0) : 0;
  node.times = node.row ? node.row.times : 0;
  node.stages = new Set(node.row && node.row.stages ? node.row.stages.split(", ") : []);
  for (const child of node.children.values()) {
    moduleSums(child);
    node.share += child.share, node.elements += child.elements, node.count += child.count;
    node.times = Math.max(node.times, child.times);
    child.stages.forEach(stage => node.stages.add(stage));
  }
}

function moduleItem(name, node, depth) {
  const below = el("div", {class: "below"}), row = node.row;
  if (row && row.parameters.length)
    below.append(table([["parameter", false], ["type", false], ["shape", false], ["split", false], ["times", true], ["elements", true]],
      row.parameters.map(one => [...one.slice(0, 4), String(one[4]), large(one[5])])));
  if (row && row.collectives.length)
    below.append(table([["collective", false], ["axis", false], ["count", true], ["bytes", true]],
      row.collectives.map(([kind, axis, count, moved]) => [kind, axis, count.toLocaleString("en-US"), bytes(moved)])));
  for (const [word, child] of node.children) below.append(moduleItem(word, child, depth + 1));
  const empty = !below.childNodes.length;
  return el("details", {class: empty ? "leaf" : "", ...(depth < 2 && node.children.size ? {open: ""} : {})},
    el("summary", {}, el("span", {class: "path"}, name || "(model)", el("span", {class: "dim"}, (name === "*" ? " \u00d7" + node.times : "") +
      (node.stages.size ? "  stage" + (node.stages.size > 1 || /[-,]/.test([...node.stages][0]) ? "s " : " ") + [...node.stages].join(", ") : ""))),
      el("span", {class: "num"}, node.elements ? large(node.elements) : ""),
      el("span", {class: "num"}, node.count ? counted(node.count, "collective") : ""),
      el("span", {class: "share"}, node.share ? el("i", {style: {width: Math.round(100 * node.share) + "px"}}) : null, !node.share ? "" : node.share < 0.0005 ? "<0.1%" : percent(node.share))), below);
}

function moduleSection() {
  const tree = moduleTree();
  moduleSums(tree);
  const list = [...tree.children].map(([name, node]) => moduleItem(name, node, 0));
  if (tree.row) list.push(moduleItem("(none or several)", {...tree.row, row: tree.row, children: new Map(), elements: 0, count: 0, stages: new Set(),
                                                     share: tree.row.share}, 0));
  section("modules", "Modules", "Repeated layers are one entry (*). For each module: parameters, collectives of an iteration, and its share of all ranks' "
    + "computing time.", ...list);
}

function listSections() {
  section("communication", "Communication", "Of one rank of each stage, in an iteration.", data.communication.length
    ? table([["kind", false], ["of", false], ["axis", false], ["count", true], ["bytes", true]],
      data.communication.map(([kind, source, axis, count, moved]) => [kind, source, axis, count.toLocaleString("en-US"), bytes(moved)]))
    : el("p", {}, "The ranks do not communicate."));
  if (data.alternatives.length)
    section("alternatives", "Alternatives", "Other choices, and what the iteration would then cost.",
      table([["decision", false], ["value", false], ["step", true], ["change", true], ["memory peak", true], ["reason", false]],
        data.alternatives.map(one => [one.decision, one.value, one.step_ms === null ? "\u2013" : time(one.step_ms), one.step_ms === null ? "" : (one.step_ms >= head.step_ms ? "+" : "\u2212") +
          percent(Math.abs(one.step_ms / Math.max(head.step_ms, 1e-9) - 1)), bytes(one.peak_bytes), one.reason])));
}

// ---- the self test: #selftest acts as a person would, for the tests of the page

function selfTest() {
  const out = {}, width = canvas.clientWidth, box = canvas.getBoundingClientRect(), row = layout.rows.find(one => one.stream && one.stream.events.length);
  const length = () => view.to - view.from, press = name => canvas.dispatchEvent(new KeyboardEvent("keydown", {key: name, cancelable: true}));
  const point = (name, x, y, pointerId = 1) => canvas.dispatchEvent(new PointerEvent(name, {clientX: box.left + x, clientY: box.top + y, pointerId}));
  const whole = length();
  canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -120, clientX: box.left + width / 2, clientY: box.top + 40, cancelable: true}));
  out.wheel = length() < whole;
  const zoomed = length();
  press("+");
  out.plus = length() < zoomed;
  const from = view.from;
  press("ArrowRight");
  out.right = view.from > from;
  const moved = view.from;
  point("pointerdown", width / 2, 40);
  point("pointermove", width / 2 + 30, 40);
  point("pointerup", width / 2 + 30, 40);
  out.drag = view.from < moved;
  const panned = length();
  point("pointerdown", width / 2, 40);
  point("pointerdown", width / 2 + 20, 40, 2);
  point("pointermove", width / 2 + 40, 40, 2);
  for (const finger of [2, 1]) point("pointerup", width / 2, 40, finger);
  out.pinch = Math.abs(length() - panned / 2) < panned / 100;
  press("Home");
  out.home = view.from === 0 && length() === whole;
  const event = row.stream.events.reduce((longest, one) => one.end - one.begin > longest.end - longest.begin ? one : longest);
  point("pointermove", (xOf(event.begin, width) + xOf(event.end, width)) / 2, row.y + 3);
  out.hover = !tip.hidden && tip.textContent.includes("takes ");
  point("pointerleave", 0, 0);
  out.leave = tip.hidden;
  press("ArrowDown");
  press(".");
  out.select = !tip.hidden && document.getElementById("said").textContent.includes("rank ");
  press("Escape");
  const theme = root.dataset.theme;
  document.getElementById("theme").click();
  out.toggle = root.dataset.theme !== theme;
  document.getElementById("theme").click();
  dispatchEvent(new Event("beforeprint"));
  out.print = root.dataset.theme === "light" && !document.querySelector("details:not([open])");
  dispatchEvent(new Event("afterprint"));
  press("Home");
  out.fits = root.scrollWidth <= innerWidth;
  root.dataset.selftest = JSON.stringify(out);
}

drawHead();
timelineSection();
memorySection();
timeSection();
meshSection();
moduleSection();
listSections();
listen();
setTheme(wanted());
root.dataset.ready = "1";
root.dataset.ms = Math.round(performance.now());
if (location.hash === "#selftest") selfTest();
