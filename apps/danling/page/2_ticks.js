// Axes: positions of ticks, and conversion of values to pixels.

function nice_step(range, most) {
  const rough = range / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999) * power;
}

function linear_ticks(low, high, most, whole) {
  if (!(high > low)) return [low];
  let step = nice_step(high - low, most);
  if (whole) step = Math.max(1, step);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) out.push(Number((i * step).toPrecision(12)));
  return out;
}

function log_ticks(low, high, most) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const skip = Math.max(1, Math.ceil((last - first) / most));
  const factors = last - first <= 1 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : last - first <= 3 ? [1, 2, 5] : [1];
  const out = [];
  for (let power = first; power <= last; power += skip) {
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(6));
      if (value >= low * 0.999 && value <= high * 1.001) out.push(value);
    }
  }
  return out.length >= 2 ? out : linear_ticks(low, high, most).filter(value => value > 0);
}

function time_ticks(low, high, most) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const rough = (high - low) / most;
  const step = steps.find(s => s >= rough) ?? Math.ceil(rough / 86400) * 86400;
  const out = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-9); ++i) out.push(i * step);
  return out;
}

function time_text(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, '0')}`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}:${String(Math.round(seconds / 60) % 60).padStart(2, '0')}h`;
  return `${Number((seconds / 86400).toFixed(1))}d`;
}

/// Converts values to pixels and back, on a linear or logarithmic scale.
function make_scale(low, high, from, to, log) {
  const f = log ? Math.log10 : value => value;
  const a = f(low), b = f(high);
  return {
    low, high, log,
    pixel: value => from + (f(value) - a) / (b - a) * (to - from),
    value: pixel => { const t = a + (pixel - from) / (to - from) * (b - a); return log ? 10 ** t : t; },
  };
}

/// Returns the range of the visible values, with a margin.
function padded_range(low, high, log) {
  if (!(low <= high)) return log ? [0.1, 1] : [0, 1];
  if (low === high) return log ? [low / 2, high * 2] : low === 0 ? [-1, 1] : [low - Math.abs(low) / 10, high + Math.abs(high) / 10];
  if (log) { const margin = (high / low) ** 0.04; return [low / margin, high * margin]; }
  const margin = (high - low) * 0.05;
  return [low >= 0 && low - margin < 0 ? 0 : low - margin, high + margin];
}
