'use strict';
// Converts the data of the page to series, axes and texts. Inserts everything into the document as text, never as HTML.

const svg_namespace = 'http://www.w3.org/2000/svg';

function el(name, attributes, ...children) {
  const out = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) out.addEventListener(key.slice(2), value);
    else if (key in out && typeof value !== 'string') out[key] = value;
    else if (value !== null && value !== undefined) out.setAttribute(key, value);
  }
  out.append(...children.flat().filter(child => child !== null && child !== undefined));
  return out;
}

const as_number = value =>
  typeof value === 'number' ? value : value === 'Infinity' ? Infinity : value === '-Infinity' ? -Infinity : NaN;

/// Formats a number for tables and legends, with at most six digits.
function short(value) {
  if (typeof value !== 'number') value = as_number(value);
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value < 0 ? '−∞' : '∞';
  const size = Math.abs(value);
  if (value === 0) return '0';
  if (size >= 1e7 || size < 1e-4) return value.toExponential(3).replace(/\.?0+e/, 'e').replace('e+', 'e').replace('-', '−');
  if (Number.isInteger(value)) return value.toLocaleString('en-US').replace('-', '−');
  const digits = size >= 1000 ? 1 : size >= 100 ? 2 : size >= 10 ? 3 : 4;
  return (size < 0.1 ? Number(value.toPrecision(4)).toString() : value.toFixed(digits)).replace('-', '−');
}
const count_text = value => Number(value).toLocaleString('en-US');

/// Formats a number for axes: 1.5k, 2M.
function tick_text(value) {
  const size = Math.abs(value);
  const plain = number => Number(number.toPrecision(6)).toString().replace('-', '−');
  if (value === 0) return '0';
  if (size >= 1e12 || size < 1e-4) return value.toExponential().replace(/(\.\d\d)\d*e/, '$1e').replace('e+', 'e').replace(/-/g, '−');
  for (const [unit, name] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (size >= unit) return plain(value / (name === 'k' ? 1e3 : unit)) + name;
  }
  return plain(value);
}

function duration_text(seconds) {
  if (!(seconds >= 0)) return '?';
  if (seconds < 60) return seconds < 10 ? `${Number(seconds.toFixed(1))} s` : `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const two = number => String(number).padStart(2, '0');
  const days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24, minutes = Math.floor(whole / 60) % 60;
  if (days > 0) return `${days} d ${two(hours)}:${two(minutes)} h`;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)} h` : `${minutes}:${two(whole % 60)} min`;
}

function age_text(seconds) {
  for (const [unit, name] of [[86400, 'd'], [3600, 'h'], [60, 'min']]) {
    if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name} ago`;
  }
  return `${Math.max(0, Math.floor(seconds))} s ago`;
}

function bytes_text(bytes) {
  for (const [unit, name] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (bytes / unit >= 1023.95 / 1024) return `${(bytes / unit).toFixed(1)} ${name}`;
  }
  return `${bytes} B`;
}

/// A piecewise linear function through knots, constant outside.
function interpolate(xs, ys, x) {
  if (x <= xs[0]) return ys[0];
  if (x >= xs[xs.length - 1]) return ys[ys.length - 1];
  const i = first_at_least(xs, x);
  return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
}

function first_at_least(sorted, x) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle + 1; else high = middle;
  }
  return low;
}

/// Returns the steps at which epochs end. Assumes that the epoch in progress is as long as the previous one.
function epoch_knots(run) {
  const curve = run.curves.find(c => c.name === 'epoch' && c.split === '');
  if (!curve || curve.steps.length === 0) return null;
  const ends = new Map();
  curve.steps.forEach((step, i) => ends.set(curve.values[i], Math.max(step, ends.get(curve.values[i]) ?? 0)));
  const whole = new Set(run.curves.filter(c => c.pass && c.mode === 'train').flatMap(c => c.steps));
  const xs = [0], ys = [0];
  for (const [epoch, end] of [...ends].sort((a, b) => a[0] - b[0])) {
    const last = xs[xs.length - 1];
    if (end <= last) continue;
    const is_last = epoch === Math.max(...ends.keys());
    const before = xs.length > 1 ? (last - xs[xs.length - 2]) / (ys[ys.length - 1] - ys[ys.length - 2]) : 0;
    const part = is_last && !whole.has(end) && before > end - last ? (end - last) / before : 1;
    xs.push(end);
    ys.push(epoch + part);
  }
  return {xs, ys};
}

function time_knots(run) {
  const curve = run.curves.find(c => c.name === 'telemetry.timestamp' && c.split === '');
  if (!curve || curve.steps.length === 0) return null;
  const xs = [], ys = [];
  curve.steps.forEach((step, i) => {
    if (xs.length === 0 || (step > xs[xs.length - 1] && curve.values[i] >= ys[ys.length - 1])) {
      xs.push(step);
      ys.push(curve.values[i]);
    }
  });
  return {xs, ys: ys.map(y => y - ys[0])};
}

const names_of_rates = {
  'telemetry.samples_per_s': 'samples/s', 'telemetry.tokens_per_s': 'tokens/s', 'telemetry.time': 'time of a step (s)',
  'telemetry.data_time': 'wait for data in a step (s)', 'telemetry.tflops': 'TFLOP/s', 'telemetry.mfu_pct': 'MFU (%)',
  'telemetry.mem_host_mb': 'memory of the host (MiB)', 'telemetry.mem_alloc_mb': 'memory of the device (MiB)', 'lr': 'learning rate',
};
const metric_title = name => names_of_rates[name] ?? name.replace(/^telemetry\./, '');

/// Converts runs and their curves to series. A kind is a split, or the averages of its passes if the split has both.
function make_model(data) {
  const kinds = [];
  const metrics = new Map();
  data.runs.forEach((run, index) => {
    run.index = index;
    run.knots = {epoch: epoch_knots(run), time: time_knots(run)};
    const trained = new Set(run.curves.filter(c => c.mode === 'train').map(c => c.split));
    const stepped = new Set(run.curves.filter(c => !c.pass).map(c => c.split));
    for (const curve of run.curves) {
      if (curve.split === '' && (curve.name === 'epoch' || curve.name === 'telemetry.timestamp')) continue;
      const evaluated = trained.has(curve.split) && curve.mode !== 'train';
      const kind = (curve.split || '?') + (evaluated ? ' evaluated' : curve.pass && stepped.has(curve.split) ? ' per pass' : '');
      if (!kinds.includes(kind)) kinds.push(kind);
      if (!metrics.has(curve.name)) metrics.set(curve.name, []);
      metrics.get(curve.name).push({run, kind, curve, key: `${run.label} ${kind} ${curve.name}`});
    }
  });
  const rank = kind => kind.startsWith('train') ? (kind === 'train' ? 0 : 9) : kind.startsWith('val') ? 1 : kind.startsWith('test') ? 3 : 2;
  kinds.sort((a, b) => rank(a) - rank(b));
  const score = data.runs.map(run => run.score && run.score.path.slice(run.score.path.indexOf('.') + 1)).find(name => name);
  const order = name => name === 'loss' ? 0 : name === score ? 1 : 2;
  const names = [...metrics.keys()].map((name, i) => [order(name), i, name]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(x => x[2]);
  return {data, kinds, metrics, names, single: data.runs.length === 1};
}

/// Returns the lowest and highest value of each bucket of steps.
function band_of(curve, place) {
  const steps = [], low = [], high = [];
  curve.steps.forEach((step, i) => {
    const last = steps.length - 1, value = curve.values[i];
    if (last >= 0 && Math.floor(step / curve.width) === Math.floor(steps[last] / curve.width)) {
      low[last] = Math.min(low[last], value);
      high[last] = Math.max(high[last], value);
    } else {
      steps.push(step);
      low.push(value);
      high.push(value);
    }
  });
  return {x: place(steps), low, high};
}

/// Places a curve on an x axis: ascending x, and the steps for the tooltip. Returns null if the run lacks data for the axis.
function on_axis(series, axis) {
  series.placed = series.placed ?? {};
  if (axis in series.placed) return series.placed[axis];
  const knots = axis === 'step' ? null : series.run.knots[axis];
  if (axis !== 'step' && !knots) return series.placed[axis] = null;
  const place = steps => knots ? steps.map(step => interpolate(knots.xs, knots.ys, step)) : steps;
  const {curve} = series;
  return series.placed[axis] = {
    band: curve.means ? band_of(curve, place) : null,
    x: place(curve.steps), y: curve.values, steps: curve.steps,
    mean_x: curve.means ? place(curve.mean_steps) : place(curve.steps), mean_y: curve.means ?? curve.values,
    bad_x: place(curve.bad_steps ?? []),
  };
}

/// Computes the exponential moving average, without bias towards the first value.
function smooth(values, weight) {
  let sum = 0, weights = 0;
  return values.map(value => {
    sum = sum * weight + value * (1 - weight);
    weights = weights * weight + (1 - weight);
    return sum / weights;
  });
}

// Colour, dashes and marker of a series. Each of the three distinguishes the runs, or the splits of one run.
const dashes = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [1, 4], [12, 4]];
const markers = ['circle', 'square', 'triangle', 'diamond', 'cross', 'down', 'plus'];
const num_colours = 8;

function style_of(model, series) {
  const kind = model.kinds.indexOf(series.kind);
  const by = model.single ? kind : series.run.index;
  return {colour: `--c${by % num_colours}`, dash: dashes[kind % dashes.length], marker: markers[by % markers.length]};
}
const style_of_run = run => ({colour: `--c${run.index % num_colours}`, dash: [], marker: markers[run.index % markers.length]});
const style_of_kind = (model, kind) => model.single ? style_of(model, {kind}) : {colour: '--soft', dash: dashes[model.kinds.indexOf(kind) % dashes.length], marker: null};

const marker_paths = {
  circle: [[-1, 0, 'arc']], square: [[-.85, -.85], [.85, -.85], [.85, .85], [-.85, .85]], triangle: [[0, -1.1], [1, .75], [-1, .75]],
  diamond: [[0, -1.2], [1.1, 0], [0, 1.2], [-1.1, 0]], down: [[0, 1.1], [1, -.75], [-1, -.75]],
  cross: [[-1.1, -.5], [-.5, -1.1], [0, -.6], [.5, -1.1], [1.1, -.5], [.6, 0], [1.1, .5], [.5, 1.1], [0, .6], [-.5, 1.1], [-1.1, .5], [-.6, 0]],
  plus: [[-.4, -1.2], [.4, -1.2], [.4, -.4], [1.2, -.4], [1.2, .4], [.4, .4], [.4, 1.2], [-.4, 1.2], [-.4, .4], [-1.2, .4], [-1.2, -.4], [-.4, -.4]],
};

/// Draws the line of a series in a legend.
function swatch(style) {
  const out = document.createElementNS(svg_namespace, 'svg');
  const shape = (name, attributes) => {
    const node = document.createElementNS(svg_namespace, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.style.setProperty(name === 'line' ? 'stroke' : 'fill', `var(${style.colour})`);
    out.append(node);
  };
  out.setAttribute('viewBox', '0 0 34 12');
  out.setAttribute('class', 'swatch');
  out.setAttribute('aria-hidden', 'true');
  shape('line', {x1: 1, x2: 33, y1: 6, y2: 6, 'stroke-width': 2, 'stroke-dasharray': style.dash.join(' ')});
  if (style.marker === 'circle') shape('circle', {cx: 17, cy: 6, r: 4});
  else if (style.marker) shape('polygon', {points: marker_paths[style.marker].map(([x, y]) => `${17 + 4 * x},${6 + 4 * y}`).join(' ')});
  return out;
}
