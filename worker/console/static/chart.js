/** Rate over time, drawn while the page is open. */
import uPlot from "./uplot.js";
import { html, rateText, useEffect, useRef } from "./ui.js";

const HEIGHT = 140;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** @param {number[]} ticks Seconds; parts of one second, as for a single sample, get their text once. */
const timeTexts = (ticks) => {
  const texts = ticks.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB"));
  return texts.map((text, index) => (text === texts[index - 1] ? "" : text));
};

/** A chart of `points`: {at: seconds since 1970, rate: records per second or null}. */
export function Chart({ points }) {
  const box = useRef(null);
  const plot = useRef(null);
  const known = points.some((point) => point.rate !== null);
  useEffect(() => {
    if (!known) return undefined;
    const element = box.current;
    const axis = { stroke: () => colour("--muted"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.15)] } },
        axes: [
          { ...axis, values: (_, ticks) => timeTexts(ticks), space: 90, size: 28 },
          { ...axis, values: (_, ticks) => ticks.map((rate) => rateText(rate)), size: 64 },
        ],
        series: [{}, { stroke: () => colour("--accent"), fill: () => colour("--accent-soft"), width: 2, points: { show: false } }],
      },
      [[], []],
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [known]);
  useEffect(() => {
    plot.current?.setData([points.map((point) => point.at), points.map((point) => point.rate)]);
  }, [points, known]);
  if (!known) return null;
  const last = points.at(-1).rate;
  return html`<figure class="chart card">
    <figcaption>Records per second <strong>${rateText(last)}</strong></figcaption>
    <div ref=${box} role="img" aria-label=${`Records per second since this page was opened, now ${rateText(last)}`}></div>
  </figure>`;
}
