// Chart: draws one metric on a canvas, with a tooltip. All charts share zoom, axis and smoothing.

class Chart {
  constructor(page, name) {
    this.page = page;
    this.name = name;
    this.series = [];
    this.cursor = null;  // x of the crosshair, in units of the axis
    this.pointers = new Map();
    this.visible = false;
    const title = metric_title(name);
    this.canvas = el('canvas', {tabIndex: 0, role: 'img'});
    this.tip = el('div', {class: 'tip', hidden: true});
    this.legend = el('ul', {class: 'legend'});
    this.wide = el('button', {class: 'quiet', type: 'button', title: 'Wide or narrow', 'aria-label': `${title}: wide or narrow`, 'aria-pressed': 'false',
      onclick: () => { this.wide.setAttribute('aria-pressed', String(this.node.classList.toggle('wide'))); this.draw(); }}, '⤢');
    this.node = el('figure', {class: 'chart'}, el('header', {}, el('h3', {}, title), this.wide), this.canvas, this.tip, this.legend);
    this.listen();
  }

  get shown() { return this.series.filter(series => this.page.is_shown(series)); }

  update(series) {
    this.series = series;
    this.draw();
  }

  /// Draws the chart now if it is on the screen, else when it becomes visible.
  draw() {
    this.stale = true;
    if (this.visible && !this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; if (this.stale) this.draw_now(); });
    }
  }

  draw_now() {
    this.stale = false;
    const {page} = this;
    const lines = this.shown.map(series => ({series, data: on_axis(series, page.axis), style: style_of(page.model, series)})).filter(line => line.data);
    this.lines = lines;
    const box = this.canvas.getBoundingClientRect();
    const ratio = page.printing ? 3 : window.devicePixelRatio || 1;
    const width = box.width || 600, height = box.height || 240;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const g = this.canvas.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [x_low, x_high] = page.x_range();
    const y_range = this.y_range(lines, x_low, x_high);
    const rows = Math.max(2, Math.floor(height / 45));
    const ticks = page.log ? log_ticks(y_range[0], y_range[1], rows) : linear_ticks(y_range[0], y_range[1], rows);
    g.font = '11px system-ui, "DejaVu Sans", sans-serif';
    const left = Math.ceil(Math.max(...ticks.map(tick => g.measureText(tick_text(tick)).width), 20)) + 10;
    this.area = {left, right: width - 8, top: 10, bottom: height - 22};
    this.x = make_scale(x_low, x_high, left, this.area.right, false);
    this.y = make_scale(y_range[0], y_range[1], this.area.bottom, this.area.top, page.log);
    this.draw_axes(g, ticks);
    g.save();
    g.beginPath();
    g.rect(left - 5, this.area.top - 6, this.area.right - left + 10, this.area.bottom - this.area.top + 7);
    g.clip();
    for (const line of lines) this.draw_line(g, line);
    g.restore();
    this.draw_cursor(g);
    this.draw_legend(lines);
    this.describe(lines);
  }

  y_range(lines, x_low, x_high) {
    let low = Infinity, high = -Infinity;
    this.hidden_values = 0;
    for (const {data} of lines) {
      for (let i = Math.max(0, first_at_least(data.x, x_low) - 1); i < data.x.length; ++i) {
        const value = data.y[i];
        if (this.page.log && !(value > 0)) { this.hidden_values += data.x[i] <= x_high; continue; }
        if (data.x[i] >= x_low) { low = Math.min(low, value); high = Math.max(high, value); }
        if (data.x[i] > x_high) break;
      }
    }
    return padded_range(low, high, this.page.log);
  }

  draw_axes(g, ticks) {
    const {area, page} = this;
    g.strokeStyle = page.colour('--grid');
    g.fillStyle = page.colour('--soft');
    g.lineWidth = 1;
    g.textBaseline = 'middle';
    g.textAlign = 'right';
    for (const tick of ticks) {
      const y = Math.round(this.y.pixel(tick)) + .5;
      g.beginPath();
      g.moveTo(area.left, y);
      g.lineTo(area.right, y);
      g.stroke();
      g.fillText(tick_text(tick), area.left - 6, y);
    }
    const most = Math.max(2, Math.floor((area.right - area.left) / 70));
    const by_time = page.axis === 'time';
    g.textBaseline = 'top';
    g.textAlign = 'center';
    for (const tick of by_time ? time_ticks(this.x.low, this.x.high, most) : linear_ticks(this.x.low, this.x.high, most, page.axis === 'step')) {
      const text = by_time ? time_text(tick) : tick_text(tick);
      const half = g.measureText(text).width / 2;
      g.fillText(text, Math.min(this.x.pixel(tick), area.right + 6 - half), area.bottom + 7);
      g.fillRect(this.x.pixel(tick) - .5, area.bottom, 1, 4);
    }
    g.strokeStyle = page.colour('--line');
    g.beginPath();
    g.moveTo(area.left, area.bottom + .5);
    g.lineTo(area.right, area.bottom + .5);
    g.stroke();
  }

  /// Returns the visible part of a line, plus one point on each side.
  path(g, xs, ys) {
    const first = Math.max(0, first_at_least(xs, this.x.low) - 1);
    let open = false;
    g.beginPath();
    for (let i = first; i < xs.length; ++i) {
      const value = ys[i];
      if (this.page.log && !(value > 0)) { open = false; continue; }
      const x = this.x.pixel(xs[i]), y = this.y.pixel(value);
      if (open) g.lineTo(x, y); else g.moveTo(x, y);
      open = true;
      if (xs[i] > this.x.high) break;
    }
    g.stroke();
  }

  /// Returns true for values of steps, which are noisy; averages of passes and learning rates are not.
  weight_of(series) { return series.curve.pass || /(^|\.)lr$/.test(this.name) ? 0 : this.page.smoothing; }

  draw_line(g, {series, data, style}) {
    const weight = this.weight_of(series);
    const averaged = Boolean(series.curve.means) || (weight > 0 && data.y.length > 2);
    const colour = this.page.colour(style.colour);
    g.strokeStyle = g.fillStyle = colour;
    g.lineJoin = 'round';
    g.setLineDash(style.dash);
    let xs = data.x, ys = data.y;
    if (data.band) this.draw_band(g, data.band);
    else if (averaged) {  // draws the raw values behind their means
      g.lineWidth = 1;
      g.globalAlpha = 0.28;
      g.setLineDash([]);
      this.path(g, xs, ys);
    }
    if (averaged) {
      g.globalAlpha = 1;
      g.setLineDash(style.dash);
      xs = data.mean_x;
      ys = weight > 0 ? smooth(data.mean_y, weight) : data.mean_y;
    }
    g.lineWidth = ys.length > 400 && !(weight > 0) ? 1.25 : 2;
    this.path(g, xs, ys);
    g.setLineDash([]);
    this.draw_markers(g, style.marker, xs, ys);
    for (const x of data.bad_x) this.draw_bad(g, this.x.pixel(x));
  }

  /// Draws the band that contains all values of a down-sampled curve; its outline keeps a spike of one bucket visible.
  draw_band(g, {x, low, high}) {
    const first = Math.max(0, first_at_least(x, this.x.low) - 1);
    const last = Math.min(x.length - 1, first_at_least(x, this.x.high));
    const pixel = value => Math.min(this.area.bottom + 9, this.page.log && !(value > 0) ? this.area.bottom + 9 : this.y.pixel(value));
    g.setLineDash([]);
    g.lineWidth = 1;
    g.beginPath();
    for (let i = first; i <= last; ++i) g[i > first ? 'lineTo' : 'moveTo'](this.x.pixel(x[i]), pixel(high[i]));
    for (let i = last; i >= first; --i) g.lineTo(this.x.pixel(x[i]), pixel(low[i]));
    g.closePath();
    g.globalAlpha = 0.16;
    g.fill();
    g.globalAlpha = 0.45;
    g.stroke();
  }

  /// Draws markers at points that are at least 60 pixels apart.
  draw_markers(g, marker, xs, ys) {
    let last = -Infinity;
    for (let i = first_at_least(xs, this.x.low); i < xs.length && xs[i] <= this.x.high; ++i) {
      const x = this.x.pixel(xs[i]);
      if (x - last < 60 || (this.page.log && !(ys[i] > 0))) continue;
      last = x;
      this.draw_marker(g, marker, x, this.y.pixel(ys[i]), 4);
    }
  }

  draw_marker(g, marker, x, y, size) {
    g.beginPath();
    if (marker === 'circle') g.arc(x, y, size, 0, 2 * Math.PI);
    else for (const [i, [dx, dy]] of marker_paths[marker].entries()) g[i ? 'lineTo' : 'moveTo'](x + dx * size, y + dy * size);
    g.fill();
  }

  draw_bad(g, x) {
    g.lineWidth = 2;
    g.beginPath();
    for (const sign of [-1, 1]) { g.moveTo(x - 4, this.area.top - 4 * sign); g.lineTo(x + 4, this.area.top + 4 * sign); }
    g.stroke();
  }

  // ---- legend, tooltip, speech ----

  name_of(series) {
    return this.page.model.single ? series.kind : this.page.model.kinds.length > 1 ? `${series.run.label} · ${series.kind}` : series.run.label;
  }

  draw_legend(lines) {
    const items = lines.slice(0, 12).map(({series, style}) => el('li', {}, swatch(style), this.name_of(series), ' ', el('b', {}, short(series.curve.last[1]))));
    if (lines.length > 12) items.push(el('li', {}, `and ${lines.length - 12} more`));
    const width = Math.max(...lines.map(({series}) => series.curve.means ? series.curve.width : 0), 0);
    if (width > 0) items.push(el('li', {}, width > 1 ? `lowest, mean and highest of ${count_text(width)} steps each` : 'lowest, mean and highest of each step'));
    const without = this.shown.length - lines.length;
    if (without > 0) items.push(el('li', {}, `${without} not shown: no position on this axis`));
    if (this.hidden_values > 0) items.push(el('li', {}, `${count_text(this.hidden_values)} values of 0 or less not shown`));
    this.legend.replaceChildren(...items);
  }

  describe(lines) {
    const last = lines.map(({series}) => `${this.name_of(series)} ${short(series.curve.last[1])}`).join(', ');
    this.canvas.setAttribute('aria-label', `${metric_title(this.name)} by ${this.page.axis}. Last: ${last || 'nothing is shown'}. ` +
      'Arrow keys read values, plus and minus zoom, 0 shows all.');
  }

  nearest(line, x) {
    const {x: xs} = line.data;
    if (xs.length === 0) return -1;
    const i = first_at_least(xs, x);
    return i > 0 && (i === xs.length || x - xs[i - 1] <= xs[i] - x) ? i - 1 : i;
  }

  draw_cursor(g) {
    const {area, page} = this;
    if (this.drag) {
      g.fillStyle = page.colour('--accent');
      g.globalAlpha = 0.18;
      g.fillRect(Math.min(this.drag.from, this.drag.to), area.top, Math.abs(this.drag.to - this.drag.from), area.bottom - area.top);
      g.globalAlpha = 1;
    }
    this.tip.hidden = this.cursor === null || this.lines.length === 0;
    if (this.tip.hidden) return;
    // The place is the nearest point of any line; each line shows its point nearest to that place.
    let place = null;
    for (const line of this.lines) {
      const i = this.nearest(line, this.cursor);
      if (i >= 0 && (place === null || Math.abs(line.data.x[i] - this.cursor) < Math.abs(place - this.cursor))) place = line.data.x[i];
    }
    if (place === null) { this.tip.hidden = true; return; }
    this.place = place;
    const at = this.x.pixel(place);
    g.strokeStyle = page.colour('--soft');
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(Math.round(at) + .5, area.top);
    g.lineTo(Math.round(at) + .5, area.bottom);
    g.stroke();
    this.fill_tip(g, place, at);
  }

  fill_tip(g, place, at) {
    const {page, area} = this;
    const rows = [];
    const words = [];
    let step = null;
    for (const line of this.lines) {
      const {series, data, style} = line;
      const i = this.nearest(line, place);
      const reach = (this.x.high - this.x.low) / (area.right - area.left) * 24;
      if (i < 0 || Math.abs(data.x[i] - place) > reach) continue;
      if (data.x[i] === place && step === null) step = data.steps[i];
      if (!page.log || data.y[i] > 0) {
        g.fillStyle = page.colour(style.colour);
        this.draw_marker(g, 'circle', this.x.pixel(data.x[i]), this.y.pixel(data.y[i]), 3.5);
      }
      const weight = this.weight_of(series);
      const smoothed = weight > 0 ? smooth(data.mean_y, weight) : null;
      const mean = smoothed && smoothed[Math.max(0, Math.min(smoothed.length - 1, first_at_least(data.mean_x, data.x[i])))];
      const elsewhere = data.x[i] !== place ? ` at step ${count_text(data.steps[i])}` : '';
      rows.push(el('tr', {}, el('td', {class: 'of'}, swatch(style), this.name_of(series) + elsewhere), el('td', {}, String(data.y[i])),
        smoothed ? el('td', {}, `≈ ${short(mean)}`) : null));
      words.push(`${this.name_of(series)} ${short(data.y[i])}`);
    }
    const lost = this.lines.flatMap(({series, data}) => data.bad_x.map((x, i) => ({x, series, i}))).filter(bad => Math.abs(this.x.pixel(bad.x) - at) < 8);
    for (const {series, i} of lost) {
      const {bad_values, bad_counts, bad_steps} = series.curve;
      rows.push(el('tr', {}, el('td', {class: 'of'}, `${this.name_of(series)} at step ${count_text(bad_steps[i])}`), el('td', {}, `${bad_values[i]}${bad_counts[i] > 1 ? ` and ${count_text(bad_counts[i] - 1)} more` : ''}`)));
    }
    const parts = [step !== null ? `step ${count_text(step)}` : null,
      page.axis === 'epoch' ? `epoch ${short(place)}` : page.axis === 'time' ? `after ${duration_text(place)}` : null];
    const head = parts.filter(part => part).join(', ');
    this.tip.replaceChildren(el('div', {}, head), el('table', {}, ...rows));
    this.spoken = `${head}: ${words.join(', ')}`;
    // Places the tooltip below the drawing, so that it does not hide it.
    const left = this.canvas.offsetLeft + at - this.tip.offsetWidth / 2;
    this.tip.style.left = `${Math.max(8, Math.min(left, this.node.clientWidth - 8 - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${this.canvas.offsetTop + area.bottom + 24}px`;
  }

  // ---- pointers and keys ----

  pixel_of(event) { return Math.max(this.area.left, Math.min(this.area.right, event.clientX - this.canvas.getBoundingClientRect().left)); }

  listen() {
    const on = (name, call, options) => this.canvas.addEventListener(name, event => { if (this.area) call(event); }, options);
    on('pointerdown', event => {
      this.canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event.clientX);
      if (event.pointerType === 'mouse' && event.button === 0) this.drag = {from: this.pixel_of(event), to: this.pixel_of(event)};
      this.pinch = this.pointers.size === 2 ? {range: this.page.x_range(), xs: this.pinch_xs()} : null;
      this.move_cursor(event);
    });
    on('pointermove', event => {
      if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, event.clientX);
      if (this.pinch && this.pointers.size === 2) this.pinch_to(this.pinch_xs());
      else if (this.drag) this.drag.to = this.pixel_of(event);
      this.move_cursor(event);
    });
    const end = event => {
      this.pointers.delete(event.pointerId);
      this.pinch = null;
      const {drag} = this;
      this.drag = null;
      if (drag && event.type === 'pointerup' && Math.abs(drag.to - drag.from) > 5) {
        this.page.zoom_to([drag.from, drag.to].map(pixel => this.x.value(pixel)).sort((a, b) => a - b));
      } else this.draw();
    };
    on('pointerup', end);
    on('pointercancel', end);
    on('pointerleave', event => { if (event.pointerType === 'mouse' && !this.drag) { this.cursor = null; this.draw(); } });
    on('blur', () => { this.cursor = null; this.draw(); });
    on('dblclick', () => this.page.zoom_to(null));
    // The wheel scrolls the page, unless Ctrl is held, as in maps (also for a pinch on a touchpad), or the chart has the focus.
    on('wheel', event => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
      event.preventDefault();
      this.zoom_around(this.x.value(this.pixel_of(event)), Math.exp(Math.max(-1, Math.min(1, event.deltaY / (event.ctrlKey ? 60 : 240)))));
    }, {passive: false});
    on('keydown', event => this.key(event));
  }

  move_cursor(event) {
    this.cursor = this.x.value(this.pixel_of(event));
    this.draw();
  }

  pinch_xs() {
    const left = this.canvas.getBoundingClientRect().left;
    return [...this.pointers.values()].map(x => x - left).sort((a, b) => a - b);
  }

  /// Zooms so that the touched values stay below the two fingers.
  pinch_to([to_a, to_b]) {
    const {range: [low, high], xs: [from_a, from_b]} = this.pinch;
    const unit = (high - low) / (this.area.right - this.area.left);
    const a = low + (from_a - this.area.left) * unit, b = low + (from_b - this.area.left) * unit;
    const new_unit = (b - a) / Math.max(20, to_b - to_a);
    const begin = a - (to_a - this.area.left) * new_unit;
    this.page.zoom_to([begin, begin + new_unit * (this.area.right - this.area.left)]);
  }

  zoom_around(x, factor) {
    const [low, high] = this.page.x_range();
    this.page.zoom_to([x - (x - low) * factor, x + (high - x) * factor]);
  }

  key(event) {
    const [low, high] = this.page.x_range();
    const middle = this.cursor ?? (low + high) / 2;
    const moves = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (moves && event.shiftKey) this.page.zoom_to([low + moves * (high - low) / 5, high + moves * (high - low) / 5]);
    else if (moves) this.step_cursor(moves);
    else if (event.key === '+' || event.key === '=') this.zoom_around(middle, 0.6);
    else if (event.key === '-') this.zoom_around(middle, 1 / 0.6);
    else if (event.key === '0') this.page.zoom_to(null);
    else if (event.key === 'Escape') { this.cursor = null; this.draw(); }
    else return;
    event.preventDefault();
  }

  /// Moves the crosshair to the next point that is some pixels away, and announces its values.
  step_cursor(direction) {
    const [low, high] = this.page.x_range();
    const least = (high - low) / (this.area.right - this.area.left) * 3;
    const from = this.cursor === null ? (direction > 0 ? low - least : high + least) : this.place ?? this.cursor;
    let best = null;
    for (const {data} of this.lines ?? []) {
      for (const x of data.x) {
        if (x < low || x > high || (x - from) * direction < least) continue;
        if (best === null || (x - best) * direction < 0) best = x;
      }
    }
    if (best === null) return;
    this.cursor = best;
    this.draw_now();
    this.page.say(this.spoken);
  }
}
