"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const themes = read("themes");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touched = matchMedia("(pointer: coarse)").matches;
  const config = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };
  const plots = new Map();
  let linking = false;

  // Figures name colours; only under keys of colours, so that no text is taken for one.
  function painted(value, theme, key) {
    if (typeof value === "string") return /color$/.test(key) ? theme[value] ?? value : value;
    if (Array.isArray(value)) return value.map((one) => painted(one, theme, key));
    if (value === null || typeof value !== "object") return value;
    const found = Object.entries(value).map(([name, one]) => [name, painted(one, theme, name)]);
    return Object.fromEntries(found);
  }

  function draw(name) {
    const plot = plots.get(name);
    const theme = dark.matches ? themes.dark : themes.light;
    const layout = painted(figures[name].layout, theme, "");
    // Fingers scroll the page; they zoom with the buttons.
    if (touched) layout.dragmode = false;
    // As those that are drawn already, this one maybe among them, show the run.
    const [shown] = linked(plot.dataset.axis ?? "");
    if (shown) layout.xaxis.range = [...shown.layout.xaxis.range];
    return Plotly.react(plot, painted(figures[name].data, theme, ""), layout, config);
  }

  // Of the figures of a run those that are drawn.
  const linked = (axis) => [...plots.values()].filter((plot) => plot.layout && plot.dataset.axis === axis);
  const whole = (axis) => {
    const all = [...plots.values()].filter((plot) => plot.dataset.axis === axis);
    const ranges = all.map((plot) => figures[plot.dataset.figure].layout.xaxis.range);
    return [Math.min(...ranges.map((one) => one[0])), Math.max(...ranges.map((one) => one[1]))];
  };

  function show(axis, range) {
    const [first, last] = whole(axis);
    const width = Math.min(range[1] - range[0], last - first);
    const start = Math.max(first, Math.min(range[0], last - width));
    const found = [start, start + width];
    linking = true;
    for (const plot of linked(axis)) {
      const now = plot.layout.xaxis.range;
      if (now[0] !== found[0] || now[1] !== found[1]) {
        Plotly.relayout(plot, { "xaxis.range": [...found] });
      }
    }
    linking = false;
    const all = width >= (last - first) * 0.999;
    const unit = linked(axis)[0].dataset.unit;
    const digits = width < 0.1 ? 4 : width < 10 ? 2 : 0;
    const told = found.map((end) => `${end.toFixed(digits)}${unit}`).join(" to ");
    for (const output of document.querySelectorAll(`output[data-axis="${axis}"]`)) {
      output.textContent = all ? "" : `showing ${told}`;
    }
  }

  const moves = {
    in: (low, high) => [low + (high - low) / 4, high - (high - low) / 4],
    out: (low, high) => [low - (high - low) / 2, high + (high - low) / 2],
    earlier: (low, high) => [low - (high - low) / 2, high - (high - low) / 2],
    later: (low, high) => [low + (high - low) / 2, high + (high - low) / 2],
    whole: () => [-Infinity, Infinity],
  };

  function zoomed(event) {
    const { axis, zoom } = event.currentTarget.dataset;
    if (!linked(axis).length) return undefined;
    return show(axis, moves[zoom](...linked(axis)[0].layout.xaxis.range));
  }

  function follow(plot) {
    plot.on("plotly_relayout", (change) => {
      if (linking || !Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
      show(plot.dataset.axis, [...plot.layout.xaxis.range]);
    });
  }

  // With the arrow keys from point to point: left and right in a line, up and down between them.
  function walk(plot) {
    const at = { trace: 0, point: -1 };
    const spoken = document.getElementById(`${plot.id}-point`);
    const inside = (trace, point) => {
      if (trace.x[point] === null) return false;
      if (!plot.dataset.axis) return true;
      const [low, high] = plot.layout.xaxis.range;
      // A bar is as long as its x, from its base on.
      const start = trace.base?.[point] ?? trace.x[point];
      return start >= low && start <= high;
    };
    const next = (step, from = at.point) => {
      const trace = plot.data[at.trace];
      let point = from + step;
      while (point >= 0 && point < trace.x.length && !inside(trace, point)) point += step;
      return point >= 0 && point < trace.x.length ? point : from;
    };
    const enter = (trace) => { at.trace = trace % plot.data.length; at.point = next(1, -1); };
    const say = () => {
      const full = plot._fullData[at.trace];
      const where = `${full.xaxis}${full.yaxis}`;
      Plotly.Fx.hover(plot, [{ curveNumber: at.trace, pointNumber: at.point }], where);
      spoken.textContent = plain(plot.data[at.trace].customdata[at.point]);
    };
    const keys = {
      ArrowRight: () => { at.point = next(1); },
      ArrowLeft: () => { at.point = at.point < 0 ? next(1) : next(-1); },
      Home: () => { at.point = next(1, -1); },
      End: () => { at.point = next(-1, plot.data[at.trace].x.length); },
      ArrowDown: () => enter(at.trace + 1),
      ArrowUp: () => enter(at.trace + plot.data.length - 1),
    };
    const leave = () => { Plotly.Fx.unhover(plot); at.point = -1; spoken.textContent = ""; };
    plot.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || !plot.data.length) return;
      if (event.key === "Escape") leave();
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
      if (at.point >= 0) say();
    });
    plot.addEventListener("blur", leave);
  }

  const characters = { "&lt;": "<", "&gt;": ">", "&#36;": "$", "&amp;": "&", "<br>": ", " };
  const plain = (text) => text.replace(/&lt;|&gt;|&#36;|&amp;|<br>/g, (one) => characters[one]);

  // Only what does not fit scrolls, and only what scrolls has to be reached.
  function reach() {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  for (const plot of document.querySelectorAll(".plot")) plots.set(plot.dataset.figure, plot);
  for (const button of document.querySelectorAll("button[data-zoom]")) {
    button.addEventListener("click", zoomed);
  }
  dark.addEventListener("change", () => {
    for (const [name, plot] of plots) if (plot.layout) draw(name);
  });
  document.addEventListener("toggle", reach, true);
  addEventListener("resize", reach);
  reach();
  // One after the other, so that the page can be read and scrolled meanwhile.
  (async () => {
    for (const [name, plot] of plots) {
      await draw(name);
      if (plot.dataset.axis) follow(plot);
      walk(plot);
      await new Promise((next) => setTimeout(next));
    }
    document.documentElement.dataset.ready = "yes";
  })();
})();
