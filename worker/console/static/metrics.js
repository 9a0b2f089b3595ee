/** The charts that somebody on call looks at first, of the last half hour, without Prometheus. */
import { call, curl } from "./api.js";
import { lastOf, times, together, valuesOf } from "./series.js";
import { Calls, Empty, html, Notice, rateText, secondsText, useEffect, useLoaded, useRef } from "./ui.js";
import uPlot from "./uplot.js";

const AGAIN_MS = 5000;
const HEIGHT = 150;
/** Workers with a line of their own; of more, the most and the least loaded would hide each other. */
const LINES = 8;
const COLOURS = ["--accent", "--unassigned", "--paused", "--failed", "--running", "--stopped", "--muted", "--ink"];
const DASHES = [[], [6, 4], [2, 3]];

function bytesText(bytes) {
  if (bytes === null) return "–";
  return bytes < 1e9 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}
const countText = (count) => (count === null ? "–" : count.toLocaleString("en"));
const coresText = (cores) => (cores === null ? "–" : cores.toFixed(2));
const shown = (text) => (value) => (value === null ? "–" : text(value));

/** What is charted: of all workers together, or a line per worker. */
const CHARTS = [
  { id: "rate", label: "Records written per second", text: shown(rateText), how: "sum", good: "Falls to nothing: look for failed tasks, and for sources that are away." },
  { id: "lag_s", label: "Behind, slowest task", text: shown(secondsText), how: "max", good: "Grows steadily: more comes than tasks take. Look which connector is behind." },
  { id: "failed", label: "Failed tasks", text: countText, how: "sum", good: "Any: the overview says why." },
  { id: "cores", label: "Cores in use", text: coresText, good: "As many as the machine has: add a worker, or spread the tasks." },
  { id: "rss", label: "Memory", text: bytesText, good: "Grows without end: lower max.queue.size.in.bytes, or add a worker." },
  { id: "delay_s", label: "Longest wait on an event loop", text: shown(secondsText), good: "Above a second for minutes: the worker has too much to do." },
];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function Lines({ at, series, text, label }) {
  const box = useRef(null);
  const plot = useRef(null);
  const names = series.map((each) => each.name).join("\n");
  useEffect(() => {
    const element = box.current;
    const axis = { stroke: () => colour("--muted"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
    const made = new uPlot({
      width: element.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((time) => new Date(time * 1000).toLocaleTimeString("en-GB").slice(0, ticks[1] - ticks[0] < 60 ? 8 : 5)), space: 80, size: 26 },
        { ...axis, values: (_, ticks) => ticks.map((value) => text(value)), size: 66 },
      ],
      series: [{}, ...series.map((each, index) => ({
        stroke: () => colour(COLOURS[index % COLOURS.length]),
        fill: series.length === 1 ? () => colour("--accent-soft") : undefined,
        dash: DASHES[Math.floor(index / 3) % DASHES.length],
        width: 2,
        points: { show: false },
      }))],
    }, [[], ...series.map(() => [])], element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names]);
  useEffect(() => {
    plot.current?.setData([at, ...series.map((each) => each.values)]);
  }, [at, series, names]);
  return html`<div ref=${box} role="img" aria-label=${label}></div>`;
}

function Figure({ chart, workers, at }) {
  const series = chart.how
    ? [{ name: "all workers", values: together(workers, at, chart.id, chart.how) }]
    : workers.slice(0, LINES).map((worker) => ({ name: worker.worker_id, values: valuesOf(worker, at, chart.id) }));
  const now = series.map((each) => [each.name, chart.text(lastOf(each.values))]);
  const last = chart.how ? now[0][1] : chart.text(series.reduce((most, each) => Math.max(most ?? 0, lastOf(each.values) ?? 0), null));
  return html`<figure class="chart card">
    <figcaption><span>${chart.label}</span><strong>${last}</strong></figcaption>
    <${Lines} at=${at} series=${series} text=${chart.text} label=${`${chart.label} over the last half hour; now ${now.map(([name, value]) => `${name}: ${value}`).join(", ")}`} />
    ${!chart.how && workers.length > 1 && html`<ul class="legend">${now.map(([name, value], index) => html`<li key=${name}><i class=${`line-${index % COLOURS.length}`}></i><span class="long">${name}</span> <strong>${value}</strong></li>`)}</ul>`}
    <p class="help">${chart.good}</p>
  </figure>`;
}

export function MetricsPage() {
  const [workers, error, reload] = useLoaded(() => call("GET", "console/metrics"), []);
  useEffect(() => {
    const timer = setInterval(reload, AGAIN_MS);
    return () => clearInterval(timer);
  }, [reload]);
  const at = workers ? times(workers) : [];
  return html`<div class="page">
    <div class="head"><h1>Metrics</h1></div>
    ${error?.status === 403
      ? html`<${Empty} title="Not for your role">The numbers are of all connectors together: they need the role read for the whole cluster.</${Empty}>`
      : error && html`<${Notice} tone=${workers ? "warning" : "error"} title="The numbers can't be read now">${error.message}</${Notice}>`}
    ${!workers && !error && html`<p class="muted" aria-busy="true">One moment …</p>`}
    ${workers && at.length < 2 && html`<${Empty} title="Not yet">The first numbers are here some seconds after a worker has started.</${Empty}>`}
    ${workers && at.length >= 2 && html`<div class="charts">${CHARTS.map((chart) => html`<${Figure} key=${chart.id} chart=${chart} workers=${workers} at=${at} />`)}</div>
      ${workers.length > LINES && html`<p class="muted">Lines of ${LINES} of ${workers.length} workers.</p>`}
      <p class="muted">The last half hour, one sample every five seconds, kept by the workers themselves. For alerts and a longer past use /metrics with Prometheus.</p>`}
    <${Calls} calls=${[curl("GET", "console/metrics"), curl("GET", "metrics")]} />
  </div>`;
}
