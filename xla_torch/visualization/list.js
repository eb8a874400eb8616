// The instructions as a list, in which only the rows that are seen stand in the page; and words for amounts.
"use strict";
const HEIGHT = 22;                         // of a row, as in page.css
const AROUND = 10;                         // rows drawn above and below those that are seen

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

function makeList(program, list, space, chosen) {
  const rows = program.instructions;
  const open = program.computations.map(each => each.entry || rows.length < 200);
  let shown = [];                          // numbers of instructions; -1 - n stands for the head of computation n
  let filter, selected = -1;               // filter: the rows that were searched for, if any were

  function fill() {
    shown = [];
    program.computations.forEach((computation, number) => {
      const inside = [];
      for (let at = computation.first; at < computation.end; at += 1) if (!filter || filter.has(at)) inside.push(at);
      if (filter && !inside.length) return;
      shown.push(-1 - number);
      if (filter || open[number]) for (const at of inside) shown.push(at);
    });
    space.style.height = `${shown.length * HEIGHT}px`;
    draw();
  }

  function draw() {
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
    const sign = open[number] || filter ? "\u25be" : "\u25b8", entry = computation.entry ? "ENTRY " : "";
    const line = element("div", `${sign} ${entry}%${computation.name} (${computation.end - computation.first})`, "row head");
    line.onclick = () => { open[number] = !open[number]; fill(); };
    return line;
  }

  function instruction(number) {
    const row = rows[number], line = element("div", "", number === selected ? "row chosen" : "row");
    line.append(element("span", (row.root ? "ROOT " : "") + "%" + row.name), element("span", row.opcode),
                element("span", row.shape), element("span", amount(row.bytes, BYTES), "number"),
                element("span", amount(row.flops, COUNTS), "number"), element("span", time(row), "number"),
                element("span", marks(row), "nan"));
    line.onclick = () => chosen(number);
    return line;
  }

  function select(number) {                // and scroll to it where it is out of sight
    selected = number;
    if (number < 0) return draw();
    if (!open[rows[number].computation]) { open[rows[number].computation] = true; fill(); }
    if (!shown.includes(number)) { filter = undefined; fill(); }
    const top = shown.indexOf(number) * HEIGHT;
    if (top < list.scrollTop || top + 2 * HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
    return draw();
  }

  list.addEventListener("scroll", draw);
  return { draw, select, only: found => { filter = found && new Set(found); list.scrollTop = 0; fill(); } };
}
