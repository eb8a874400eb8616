// The page of a program. Texts of the program are set as text, never as markup.
"use strict";
const program = JSON.parse(document.getElementById("program").textContent);
const HEIGHT = 22;                         // of a row, as in page.css
const LINKS = 200;                         // operands, users and callers that are listed
const AROUND = 10;                         // rows drawn above and below those that are seen
const rows = program.instructions;         // {name, computation, operands, calls, ...}
const users = rows.map(() => []);
rows.forEach((row, number) => row.operands.forEach(operand => users[operand].push(number)));
const open = program.computations.map(each => each.entry || rows.length < 200);
const list = document.getElementById("list"), space = document.getElementById("space");
const detail = document.getElementById("detail"), search = document.getElementById("search");
let shown = [];                            // numbers of instructions; -1 - n stands for the head of computation n
let chosen = -1;

function element(kind, text, classes) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

function amount(value, units) {            // 1536 -> "1.5 k"
  if (!value) return "";
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(3)} ${units[unit]}`;
}
const COUNTS = ["", "k", "M", "G", "T"], BYTES = ["B", "kB", "MB", "GB", "TB"], TIMES = ["us", "ms", "s"];
const time = row => row.seconds === undefined ? "" : amount(row.seconds * 1e6, TIMES);
const marks = row => (row.nan ? `${row.nan} NaN ` : "") + (row.inf ? `${row.inf} Inf` : "");

function choose() {                        // which rows are in the list
  const wanted = search.value.toLowerCase();
  const fits = row => `${row.name} ${row.opcode} ${row.shape} ${row.op_name} ${row.source}`.toLowerCase().includes(wanted);
  shown = [];
  program.computations.forEach((computation, number) => {
    const inside = [];
    for (let at = computation.first; at < computation.end; at += 1) if (!wanted || fits(rows[at])) inside.push(at);
    if (wanted && !inside.length) return;
    shown.push(-1 - number);
    if (wanted || open[number]) for (const at of inside) shown.push(at);
  });
  space.style.height = `${shown.length * HEIGHT}px`;
  draw();
}

function draw() {                          // only the rows that are seen stand in the page
  const first = Math.max(0, Math.floor(list.scrollTop / HEIGHT) - AROUND);
  const end = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / HEIGHT) + AROUND);
  const made = [];
  for (let place = first; place < end; place += 1) {
    const line = shown[place] < 0 ? head(-1 - shown[place]) : instruction(shown[place]);
    line.style.top = `${place * HEIGHT}px`;
    made.push(line);
  }
  space.replaceChildren(...made);
}

function head(number) {
  const computation = program.computations[number];
  const sign = open[number] || search.value ? "\u25be" : "\u25b8", entry = computation.entry ? "ENTRY " : "";
  const line = element("div", `${sign} ${entry}%${computation.name} (${computation.end - computation.first})`, "row head");
  line.onclick = () => { open[number] = !open[number]; choose(); };
  return line;
}

function instruction(number) {
  const row = rows[number], line = element("div", "", number === chosen ? "row chosen" : "row");
  line.append(element("span", (row.root ? "ROOT " : "") + "%" + row.name), element("span", row.opcode),
              element("span", row.shape), element("span", amount(row.bytes, BYTES), "number"),
              element("span", amount(row.flops, COUNTS), "number"), element("span", time(row), "number"),
              element("span", marks(row), "nan"));
  line.onclick = () => look(number);
  return line;
}

function look(number) {                    // show an instruction, and scroll to it where it is out of sight
  const row = rows[number];
  chosen = number;
  if (!open[row.computation]) { open[row.computation] = true; choose(); }
  if (!shown.includes(number)) { search.value = ""; choose(); }
  const top = shown.indexOf(number) * HEIGHT;
  if (top < list.scrollTop || top + 2 * HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
  draw();
  detail.replaceChildren(...details(number));
}

function details(number) {
  const row = rows[number], made = element("dl", "");
  const say = (title, ...parts) => {
    const shownParts = parts.filter(part => part !== "");
    if (shownParts.length) { const dd = element("dd", ""); dd.append(...shownParts); made.append(element("dt", title), dd); }
  };
  const link = each => { const a = element("a", `%${rows[each].name} = ${rows[each].shape}`); a.onclick = () => look(each); return a; };
  const some = all => {                    // a parameter may have ten thousand users
    const made = all.slice(0, LINKS).map(link);
    return all.length > LINKS ? [...made, `and ${all.length - LINKS} more`] : made;
  };
  const into = each => {
    const a = element("a", `%${program.computations[each].name}`);
    a.onclick = () => look(program.computations[each].root);
    return a;
  };
  say("instruction", row.text);
  say("operands", ...some(row.operands));
  say("users", ...some(users[number]));
  say("calls", ...row.calls.map(into));
  say("called by", ...some(program.computations[row.computation].callers));
  say("op_name", row.op_name);
  say("source", row.source);
  say("sharding", row.sharding, ...(row.tiles ? [tiles(row.tiles)] : []));
  say("bytes, flops, transcendentals", `${row.bytes}, ${row.flops}, ${row.transcendentals}`);
  say("time", time(row) && `${time(row)} in ${row.runs} runs`);
  say("values", marks(row));
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

list.addEventListener("scroll", draw);
window.addEventListener("resize", draw);
search.addEventListener("input", () => { list.scrollTop = 0; choose(); });
choose();
