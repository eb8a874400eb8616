// The page of a program: the graph, the list and the pane say the same. Texts of the program are set as text, never as markup.
"use strict";
const program = JSON.parse(document.getElementById("program").textContent);
const LINKS = 200;                         // operands, users and callers that are listed
const READABLE = 0.5;                      // the least scale that is gone to by itself
const COLUMNS = 600;                       // of the picture of memory
const [detail, search, found, legend, colourChoice, memory] =
  ["detail", "search", "found", "legend", "colours", "memory"].map(name => document.getElementById(name));
const tree = makeTree(program, dagre), colours = makeColours(tree, program), rows = tree.rows;
const entry = program.computations.find(each => each.entry);
const marker = document.createElementNS(memory.namespaceURI, "path");
let mode = Object.keys(colours.modes)[0], chosen, matches = [], match = -1;
const drawing = makeDrawing(tree, document.getElementById("graph"), node => choose(node), node => colours.modes[mode].of(node));
const list = makeList(program, document.getElementById("list"), document.getElementById("space"), row => look(row));

const look = row => choose(tree.leafOf(row, chosen), true);

function choose(node, jump) {              // in the graph, the list and the pane
  chosen = node;
  drawing.select(node, jump);
  list.select(node && node.row >= 0 ? node.row : -1);
  detail.replaceChildren(...(!node ? welcome() : node.row >= 0 ? details(node) : summary(node)));
  mark();
  remember();
}

// ------------------------------------------------------------------------------------------------ the pane

function say(made, title, ...parts) {
  const shown = parts.filter(part => part !== "" && part !== undefined);
  if (!shown.length) return;
  const dd = element("dd", "");
  dd.append(...shown);
  made.append(element("dt", title), dd);
}

function act(text, what) {
  const made = element("a", text);
  made.onclick = what;
  return made;
}
const link = row => act(`%${rows[row].name} = ${rows[row].shape}`, () => look(row));
const some = all => all.length > LINKS ? [...all.slice(0, LINKS).map(link), `and ${all.length - LINKS} more`] : all.map(link);
const opener = node => act(node.open ? "close it" : "open it", () => { drawing.toggle(node, !node.open); choose(node); });

function welcome() {
  const made = element("dl", "");
  say(made, "what to click", "A box: an instruction says here what it is, with its operands and users in colour; a group opens. "
      + "\u25b8 opens and \u25be closes, also what an instruction calls. Drag to move, turn the wheel to come closer. "
      + "Search, and press Enter to go from match to match; the groups around them open.");
  const most = entry.live.length ? Math.max(...entry.live) : 0;
  say(made, "program", `${rows.length} instructions in ${program.computations.length} computations`);
  if (most) say(made, "live at one time, at most", amount(most, BYTES), link(entry.first + entry.live.indexOf(most)));
  for (const { opcode, among, found, sent } of exchanged()) {
    say(made, `${found.length} ${opcode}`, among, sent ? `\neach sends ${amount(sent, BYTES)} by the usual algorithms` : "", ...some(found));
  }
  return [element("strong", "Nothing is chosen"), made];
}

function exchanged() {                     // who sends what to whom: the exchanges of one opcode between the same
  const kinds = new Map();
  for (const each of program.exchanges) {
    const { opcode } = rows[each.row], among = partners(each), key = `${opcode} ${among}`;
    if (!kinds.has(key)) kinds.set(key, { opcode, among, found: [], sent: 0 });
    kinds.get(key).found.push(each.row);
    kinds.get(key).sent += each.sent;
  }
  return kinds.values();
}

function partners({ between, sets, more }) {
  return `${between}: ${sets.map(set => `{${set.join(",")}}`).join(" ")}${more ? ` and ${more} more` : ""}`;
}

function summary(node) {                   // of a group, a run of instructions, or a computation
  const made = element("dl", ""), { operands, users } = tree.around(node), kinds = new Map();
  tree.rowsOf(node).forEach(row => kinds.set(rows[row].opcode, (kinds.get(rows[row].opcode) || 0) + 1));
  const most = [...kinds].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([opcode, count]) => `${opcode} ${count}`);
  const other = tree.counterpart(node);
  say(made, tree.second(node), most.join(", "), opener(node));
  if (other) say(made, "beside it", act(other.label, () => choose(other, true)));
  if (node.computation >= 0) say(made, "called by", ...some(program.computations[node.computation].callers));
  const [bytes, flops] = [["bytes", BYTES], ["flops", COUNTS]].map(([what, units]) => amount(colours.total(node, what), units) || 0);
  say(made, "bytes, flops", `${bytes}, ${flops}`);
  say(made, "time, with computations that only these call", amount(colours.total(node, "seconds") * 1e6, TIMES));
  say(made, "values", marks({ nan: colours.total(node, "nan"), inf: colours.total(node, "inf") }));
  say(made, "operands from outside", ...some(operands));
  say(made, "users outside", ...some(users));
  return [element("strong", node.label), made];
}

function details(node) {
  const row = rows[node.row], made = element("dl", ""), computation = program.computations[row.computation];
  const into = each => act(`%${program.computations[each].name}`, () => look(program.computations[each].root));
  say(made, "instruction", row.text);
  say(made, "operands", ...some(row.operands));
  say(made, "users", ...some(tree.users[node.row]));
  if (row.calls.length) say(made, "calls", ...row.calls.map(into), opener(node));
  say(made, "called by", ...some(computation.callers));
  say(made, "op_name", row.op_name);
  say(made, "source", row.source);
  say(made, "sharding", row.sharding, ...(row.tiles ? [`\nof each participant [${row.tiles.piece}]\n`, tiles(row.tiles)] : []));
  say(made, "bytes, flops, transcendentals", `${row.bytes}, ${row.flops}, ${row.transcendentals}`);
  if (computation.live.length) say(made, "live while it runs", amount(computation.live[node.row - computation.first], BYTES));
  program.exchanges.filter(each => each.row === node.row).forEach(each => say(made, "exchange", partners(each)));
  say(made, "time", time(row) && `${time(row)} in ${row.runs} runs`);
  say(made, "values", marks(row));
  return [element("strong", `%${row.name}`), made];
}

function tiles(pieces) {                   // {columns, devices}: a colour for each device
  const made = element("div", "", "tiles");
  made.style.gridTemplateColumns = `repeat(${pieces.columns}, auto)`;
  for (const device of pieces.devices) {
    const tile = element("span", String(device));
    tile.style.background = `hsl(${(device * 137) % 360} 70% 80%)`;
    made.append(tile);
  }
  return made;
}

// ----------------------------------------------------------------------------------------- colours, memory, search

function paint() {
  const items = colours.modes[mode].legend.map(([classes, words]) => {
    const made = element("span", words);
    made.prepend(element("i", "", `swatch ${classes}`));
    return made;
  });
  legend.replaceChildren(...items);
  drawing.draw();
}

function chart() {                         // live bytes of the entry, the most of each column
  const { live, first, name } = entry, most = Math.max(0, ...live);
  document.getElementById("memory-view").hidden = !most;
  if (!most) return;
  const columns = Math.min(live.length, COLUMNS), each = live.length / columns, high = new Array(columns).fill(0);
  live.forEach((bytes, at) => { const to = Math.min(Math.floor(at / each), columns - 1); high[to] = Math.max(high[to], bytes); });
  const steps = high.map((bytes, at) => `V ${(100 - 100 * bytes / most).toFixed(1)} H ${at + 1}`).join(" ");
  const made = document.createElementNS(memory.namespaceURI, "path");
  made.setAttribute("d", `M 0 100 ${steps} V 100 Z`);
  memory.setAttribute("viewBox", `0 0 ${columns} 100`);
  memory.replaceChildren(made, marker);
  document.getElementById("memory-says").textContent = `Live bytes by instruction of %${name}: at most ${amount(most, BYTES)}, `
    + "from shapes, without arguments; lowered programs need less. Click for the instruction.";
  memory.addEventListener("click", event => {
    const { left, width } = memory.getBoundingClientRect();
    const at = Math.min(Math.max(Math.floor((event.clientX - left) / width * columns), 0), columns - 1);
    const from = Math.floor(at * each), part = live.slice(from, Math.ceil((at + 1) * each));
    look(first + from + part.indexOf(Math.max(...part)));
  });
}

function mark() {                          // where the chosen instruction stands in it
  const at = chosen && chosen.row >= entry.first && chosen.row < entry.end ? chosen.row - entry.first + 0.5 : -1;
  const columns = Math.min(entry.live.length, COLUMNS);
  marker.setAttribute("d", at < 0 ? "" : `M ${at / entry.live.length * columns} 0 V 100`);
}

function seek() {
  matches = tree.find(search.value);
  match = -1;
  found.textContent = search.value ? `${matches.length} found` : "";
  list.only(search.value ? matches : undefined);
}

function next(step) {                      // the groups on the way open
  if (!matches.length) return;
  match = (match + step + matches.length) % matches.length;
  found.textContent = `${match + 1} of ${matches.length}`;
  look(matches[match]);
}

function show(graph) {
  document.getElementById("graph-view").hidden = !graph;
  document.getElementById("list").hidden = graph;
  document.getElementById("as-graph").className = graph ? "on" : "";
  document.getElementById("as-list").className = graph ? "" : "on";
  if (graph) drawing.select(chosen, true); // it may have been chosen in the list
  else list.draw();
}

function remember() {                      // page.html#%dot.5 is a link to an instruction
  if (chosen && chosen.row >= 0) history.replaceState(null, "", `#${encodeURIComponent(`%${rows[chosen.row].name}`)}`);
}

function linked() {
  let name = "";
  try { name = decodeURIComponent(location.hash.slice(1)); } catch { return; }
  const row = rows.findIndex(each => `%${each.name}` === name);
  if (row >= 0) look(row);
}

Object.keys(colours.modes).forEach(name => colourChoice.append(element("option", name)));
colourChoice.addEventListener("change", () => { mode = colourChoice.value; paint(); });
search.addEventListener("input", seek);
search.addEventListener("keydown", event => { if (event.key === "Enter") next(event.shiftKey ? -1 : 1); });
for (const [name, what] of Object.entries({
  "as-graph": () => show(true), "as-list": () => show(false), in: () => drawing.zoom(1.25), out: () => drawing.zoom(0.8),
  fit: () => drawing.fit(), more: () => { tree.more(2000); drawing.fit(READABLE); },
  less: () => { tree.less(); drawing.fit(READABLE); } })) {
  document.getElementById(name).addEventListener("click", what);
}
window.addEventListener("resize", () => { drawing.draw(); list.draw(); });
marker.setAttribute("class", "marker");
list.only(undefined);
chart();
paint();
show(true);
drawing.fit(READABLE);
choose(undefined);
linked();
