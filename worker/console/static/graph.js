/** The pipeline as a graph: its nodes and edges, and where they stand. Pure. */
import { STATES } from "./ui.js";

/** Connectors that are shown at a time: more are not taken in at a glance. */
export const MOST = 40;
export const NODE = { width: 164, height: 54 };
const GAP = { x: 84, y: 14 };
const SWEEPS = 4;
/** Topics of one connector that stand alone; more that nobody else uses are one node. */
const ALONE = 4;
const RANKS = { source: 0, connector: 1, topic: 2, flow: 3, target: 4 };

/** The connectors to show of all: those of a filter, what is worst first, then the fastest. */
export function selected(places, rows, q) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (place) => {
    const text = [place.name, place.source ?? "", ...place.reads, ...place.writes, ...place.targets].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const weight = (place) => STATES.indexOf(rows.get(place.name)?.worst ?? "UNASSIGNED");
  const rate = (place) => rows.get(place.name)?.rate ?? 0;
  const found = places.filter((place) => rows.has(place.name) && fits(place));
  return [...found].sort((a, b) => weight(a) - weight(b) || rate(b) - rate(a) || (a.name < b.name ? -1 : 1));
}

/** Nodes and edges of connectors: {nodes: Map by id, edges: [{from, to, of, part}]}. */
export function graphOf(places) {
  const nodes = new Map();
  const edges = [];
  const node = (id, kind, label, more) => {
    if (!nodes.has(id)) nodes.set(id, { id, kind, label, ...more });
    return id;
  };
  const users = new Map();
  for (const place of places) {
    for (const topic of [...place.reads, ...place.writes]) users.set(topic, (users.get(topic) ?? 0) + 1);
  }
  const topics = (place, list, more, own) => {
    const shared = list.filter((topic) => users.get(topic) > 1);
    const single = list.filter((topic) => users.get(topic) === 1);
    const fold = single.length + more > ALONE;
    const ids = [...shared, ...(fold ? [] : single)].map((topic) => node(`topic ${topic}`, "topic", topic));
    if (fold) ids.push(node(`topics ${own}`, "topics", `${single.length + more} topics`, { title: single.join(", "), connector: place.name }));
    return ids;
  };
  for (const place of places) {
    const id = node(`connector ${place.name}`, place.kind === "source" ? "connector" : "flow", place.name, { connector: place.name });
    const join = (from, to, part) => edges.push({ from, to, of: place.name, part });
    if (place.source) join(node(`source ${place.source}`, "source", place.source), id, "in");
    for (const topic of topics(place, place.reads, place.reads_more, `in ${place.name}`)) join(topic, id, "in");
    for (const topic of topics(place, place.writes, place.writes_more, `out ${place.name}`)) join(id, topic, "out");
    for (const target of place.targets) join(id, node(`target ${target}`, "target", target), "out");
  }
  return { nodes, edges };
}

/** The column of each node: behind all that lead to it; edges that close a circle don't count. */
function ranked({ nodes, edges }) {
  const out = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const edge of edges) out.get(edge.from).push(edge.to);
  const ranks = new Map([...nodes.values()].map((each) => [each.id, RANKS[each.kind === "topics" ? "topic" : each.kind]]));
  const open = new Set();
  const done = new Set();
  const order = [];
  const backward = new Set();
  const visit = (id) => {
    open.add(id);
    for (const next of out.get(id)) {
      if (open.has(next)) backward.add(`${id}\n${next}`);
      else if (!done.has(next)) visit(next);
    }
    open.delete(id);
    done.add(id);
    order.push(id);
  };
  for (const id of nodes.keys()) if (!done.has(id)) visit(id);
  for (const id of order.reverse()) {
    for (const next of out.get(id)) {
      if (!backward.has(`${id}\n${next}`)) ranks.set(next, Math.max(ranks.get(next), ranks.get(id) + 1));
    }
  }
  return ranks;
}

/** The parts of a graph that nothing joins, in the order of their first nodes. */
function parts({ nodes, edges }) {
  const root = new Map([...nodes.keys()].map((id) => [id, id]));
  const find = (id) => {
    while (root.get(id) !== id) id = root.get(id);
    return id;
  };
  for (const edge of edges) root.set(find(edge.to), find(edge.from));
  const found = new Map();
  for (const each of nodes.values()) {
    const key = find(each.id);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(each);
  }
  return [...found.values()];
}

/** The heights of a part's nodes from 0 on: near to what they are joined with, and none over another. */
function heights(columns, edges) {
  const near = new Map(columns.flat().map((each) => [each.id, []]));
  for (const edge of edges) {
    near.get(edge.from)?.push(edge.to);
    near.get(edge.to)?.push(edge.from);
  }
  const step = NODE.height + GAP.y;
  const y = new Map();
  for (const column of columns) column.forEach((each, index) => y.set(each.id, index * step));
  const wanted = (each) => {
    const others = near.get(each.id);
    return others.length ? others.reduce((sum, id) => sum + y.get(id), 0) / others.length : y.get(each.id);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const aims = new Map(column.map((each) => [each.id, wanted(each)]));
      column.sort((a, b) => aims.get(a.id) - aims.get(b.id));
      let free = -Infinity;
      for (const each of column) {
        const at = Math.max(aims.get(each.id), free);
        y.set(each.id, at);
        free = at + step;
      }
      // Pushed down together: moved back by what they are too low on average.
      const low = column.reduce((sum, each) => sum + y.get(each.id) - aims.get(each.id), 0) / column.length;
      for (const each of column) y.set(each.id, y.get(each.id) - low);
    }
  }
  const top = Math.min(...y.values());
  return new Map([...y].map(([id, at]) => [id, Math.round(at - top)]));
}

/** Where everything stands: {nodes with x and y, edges with their nodes, width, height}. */
export function laidOut(graph) {
  const ranks = ranked(graph);
  const used = [...new Set(ranks.values())].sort((a, b) => a - b);
  const nodes = [];
  let top = 0;
  for (const part of parts(graph)) {
    const columns = used.map((rank) => part.filter((each) => ranks.get(each.id) === rank)).filter((column) => column.length > 0);
    const y = heights(columns, graph.edges);
    for (const each of columns.flat()) {
      nodes.push({ ...each, x: used.indexOf(ranks.get(each.id)) * (NODE.width + GAP.x), y: top + y.get(each.id) });
    }
    top += Math.max(...y.values()) + NODE.height + 2 * GAP.y;
  }
  const at = new Map(nodes.map((each) => [each.id, each]));
  return {
    nodes,
    edges: graph.edges.map((edge) => ({ ...edge, from: at.get(edge.from), to: at.get(edge.to) })),
    width: Math.max(0, used.length * (NODE.width + GAP.x) - GAP.x),
    height: Math.max(0, top - 2 * GAP.y),
  };
}

/** The line of an edge. */
export function path({ from, to }) {
  const [x1, y1, x2, y2] = [from.x + NODE.width, from.y + NODE.height / 2, to.x, to.y + NODE.height / 2];
  const bend = Math.max(36, Math.abs(x2 - x1) / 2);
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

/** Where a connector's two texts stand: beside it, where all its edges of a side meet. */
export function marks(layout) {
  const found = new Map();
  for (const edge of layout.edges) {
    const own = edge.part === "in" ? edge.to : edge.from;
    const key = `${edge.part} ${edge.of}`;
    if (!found.has(key)) {
      const x = edge.part === "in" ? own.x - GAP.x / 2 : own.x + NODE.width;
      found.set(key, { key, of: edge.of, part: edge.part, x, y: own.y + NODE.height / 2, width: GAP.x / 2 });
    }
  }
  return [...found.values()];
}
