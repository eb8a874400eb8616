// The graph in the page: what the tree says is seen, as SVG; drags, the wheel and keys move it, clicks open and choose.
"use strict";
const LINKED = 100;                        // operands and users that have lines of their own
const MARGIN = 0.5;                        // of the view, drawn around it so that not each move draws anew
const LEAST = 0.02, LARGEST = 4;           // scales

function makeDrawing(tree, svg, chosen, colour) {
  const world = svg.querySelector("#world");
  const view = { x: 0, y: 0, k: 1 };
  let ready, nodes = new Map(), selected;

  function make(kind, attributes, text) {
    const made = document.createElementNS(svg.namespaceURI, kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function move() {                        // only a transform, until the view leaves what is drawn
    const { width, height } = svg.getBoundingClientRect();
    world.setAttribute("transform", `translate(${-view.x * view.k} ${-view.y * view.k}) scale(${view.k})`);
    const w = width / view.k, h = height / view.k;
    if (!ready || view.k > ready.k * 1.3 || view.k < ready.k / 1.3 || view.x < ready.x || view.y < ready.y
        || view.x + w > ready.x + ready.w || view.y + h > ready.y + ready.h) {
      ready = { k: view.k, x: view.x - w * MARGIN, y: view.y - h * MARGIN, w: w * (1 + 2 * MARGIN), h: h * (1 + 2 * MARGIN) };
      fill();
    }
  }

  function draw() {
    ready = undefined;
    tree.arrange(tree.root);
    move();
  }

  function fill() {
    const { boxes, lines } = tree.drawn(ready, view.k);
    const marks = marked();
    nodes = new Map();
    const outer = boxes.filter(each => each.inside), inner = boxes.filter(each => !each.inside);
    world.replaceChildren(...outer.map(each => shape(each, marks)),
                          ...lines.map(({ line, x, y }) => make("path", { class: "line", d: curve(line.points, x, y) })),
                          ...inner.map(each => shape(each, marks)), ...links());
  }

  function shape({ node, x, y, inside }, marks) {
    const opens = tree.opens(node), looks = inside ? "open" : colour(node);
    const made = make("g", { class: `box ${node.kind} ${looks} ${marks.get(node) || ""}` });
    made.append(make("rect", { x, y, width: node.w, height: node.h, rx: node.kind === "instruction" ? 3 : 8 }));
    nodes.set(made, node);
    if (HIGH * view.k < 13 && !(inside && node.w * view.k > 3 * FAR)) return made;
    const size = inside ? Math.min(13 / Math.min(view.k, 1), HEAD * 0.8) : 13;
    const letters = Math.floor((node.w - 2 * GAP - (opens ? 12 : 0)) / LETTER * 13 / size), left = x + GAP + (opens ? 14 : 0);
    const cut = (text, small = 1) => {
      const most = Math.floor(letters / small);
      return text.length > most ? `${text.slice(0, Math.max(most - 1, 1))}\u2026` : text;
    };
    if (opens) made.append(make("text", { x: x + 9, y: y + (inside ? 20 : 17), class: "sign" }, node.open ? "\u25be" : "\u25b8"));
    made.append(make("text", { x: left, y: y + (inside ? 21 : 17), "font-size": size, class: "name" }, cut(node.label)));
    if (!node.open) made.append(make("text", { x: left, y: y + 32, "font-size": 11, class: "more" }, cut(tree.second(node), SMALL)));
    made.append(make("title", {}, `${node.label}\n${tree.second(node)}`));
    return made;
  }

  function curve(points, x, y) {
    const at = point => `${(x + point.x).toFixed(1)} ${(y + point.y).toFixed(1)}`;
    const middle = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
    let d = `M ${at(points[0])}`;
    for (let k = 1; k < points.length - 1; k += 1) d += ` Q ${at(points[k])} ${at(middle(points[k], points[k + 1]))}`;
    return `${d} L ${at(points[points.length - 1])}`;
  }

  const shown = row => tree.shownFor(tree.leafOf(row, selected));

  function marked() {                      // the boxes that stand for what the chosen one reads, and for what reads it
    const marks = new Map();
    if (!selected) return marks;
    const { operands, users } = tree.around(selected);
    operands.forEach(row => marks.set(shown(row), "operand"));
    users.forEach(row => marks.set(shown(row), marks.get(shown(row)) === "operand" ? "operand user" : "user"));
    return marks.set(tree.shownFor(selected), "chosen");
  }

  function links() {
    if (!selected) return [];
    const { operands, users } = tree.around(selected), own = tree.shownFor(selected);
    const between = (from, to, kind) => {
      if (from === to || holds(from, to) || holds(to, from)) return [];
      const a = tree.corner(from), b = tree.corner(to), down = a.y <= b.y;
      const x = a.x + a.w / 2, y = down ? a.y + a.h : a.y, u = b.x + b.w / 2, v = down ? b.y : b.y + b.h;
      const bend = Math.max(Math.abs(v - y) / 2, 20) * (down ? 1 : -1);
      return [make("path", { class: `link ${kind}`, d: `M ${x} ${y} C ${x} ${y + bend} ${u} ${v - bend} ${u} ${v}` })];
    };
    return [...[...new Set(operands.slice(0, LINKED).map(shown))].flatMap(each => between(each, own, "operand")),
            ...[...new Set(users.slice(0, LINKED).map(shown))].flatMap(each => between(own, each, "user"))];
  }

  function holds(outer, node) {
    for (let up = node.parent; up; up = up.parent) if (up === outer) return true;
    return false;
  }

  // ------------------------------------------------------------------------------------------------ moves

  function zoom(factor, x, y) {            // around a point of the screen
    const { width, height } = svg.getBoundingClientRect();
    const k = Math.min(Math.max(view.k * factor, LEAST), LARGEST), [px, py] = [x ?? width / 2, y ?? height / 2];
    view.x += px / view.k - px / k;
    view.y += py / view.k - py / k;
    view.k = k;
    move();
  }

  function pan(dx, dy) {
    view.x += dx / view.k;
    view.y += dy / view.k;
    move();
  }

  function fit(least) {                    // all of it, or its top at a scale where it can be read
    tree.arrange(tree.root);
    const { width, height } = svg.getBoundingClientRect(), { w, h } = tree.root;
    view.k = Math.min(Math.max(Math.min(width / (w + 40), height / (h + 40)), least || LEAST), 1);
    view.x = (w - width / view.k) / 2;
    view.y = h * view.k + 100 > height ? -50 / view.k : (h - height / view.k) / 2;
    draw();
  }

  function centre(node, least) {           // where it is out of sight, or too small to read
    tree.arrange(tree.root);
    const { width, height } = svg.getBoundingClientRect(), at = tree.corner(node);
    const right = view.x + width / view.k, bottom = view.y + height / view.k;
    const sees = at.x >= view.x && at.y >= view.y && at.x + at.w <= right && at.y + at.h <= bottom;
    if (!sees || view.k < least) {
      view.k = Math.max(view.k, least);
      view.x = at.x + at.w / 2 - width / view.k / 2;
      view.y = at.y + Math.min(at.h, height / view.k) / 2 - height / view.k / 2;
    }
    draw();
  }

  function toggle(node, open) {            // the box stays where it is on the screen
    const before = tree.corner(node);
    tree.toggle(node, open);
    tree.arrange(tree.root);
    const after = tree.corner(node);
    view.x += after.x - before.x;
    view.y += after.y - before.y;
    draw();
  }

  function select(node, jump) {
    selected = node;
    if (!node) return draw();
    if (jump) tree.reveal(node);
    return jump ? centre(node, 0.7) : draw();
  }

  function click(target) {
    const node = nodes.get(target.parentNode);
    if (!node) return chosen(undefined);
    const sign = target.classList.contains("sign");
    if (sign || (node.kind !== "instruction" && !node.open)) toggle(node, !node.open);
    return chosen(node);
  }

  let drag;
  svg.addEventListener("pointerdown", event => {
    drag = { x: event.clientX, y: event.clientY, target: event.target, far: false };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.far && Math.hypot(dx, dy) < 4) return;
    drag = { ...drag, x: event.clientX, y: event.clientY, far: true };
    pan(-dx, -dy);
  });
  svg.addEventListener("pointerup", () => { const was = drag; drag = undefined; if (was && !was.far) click(was.target); });
  svg.addEventListener("pointercancel", () => { drag = undefined; });
  svg.addEventListener("wheel", event => {
    const { left, top } = svg.getBoundingClientRect();
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - left, event.clientY - top);
  }, { passive: false });
  svg.addEventListener("keydown", event => {
    const keys = { ArrowLeft: () => pan(-80, 0), ArrowRight: () => pan(80, 0), ArrowUp: () => pan(0, -80), ArrowDown: () => pan(0, 80),
                   "+": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit() };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  return { draw, fit, zoom, toggle, select };
}
