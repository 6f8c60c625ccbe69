// The page: state, controls, layout and live updates.

class Page {
  constructor(data) {
    this.axis = 'step';
    this.smoothing = 0;
    this.log = false;
    this.zoom = null;
    this.filter = '';
    this.off_runs = new Set();
    this.kinds_on = new Map();
    this.charts = new Map();
    this.colours = new Map();
    this.printing = false;
    this.probe = el('span', {hidden: true});
    document.body.append(this.probe);
    this.observer = new IntersectionObserver(entries => {
      for (const entry of entries) {
        const chart = [...this.charts.values()].find(one => one.node === entry.target);
        if (!chart) continue;
        chart.visible = entry.isIntersecting;
        if (chart.visible && chart.stale) chart.draw();
      }
    }, {rootMargin: '200px'});
    new ResizeObserver(() => this.redraw()).observe(document.getElementById('main'));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.repaint());
    addEventListener('beforeprint', () => this.print(true));
    addEventListener('afterprint', () => this.print(false));
    this.show(data);
  }

  /// Returns a custom CSS property as a colour for a canvas.
  colour(name) {
    if (!this.colours.has(name)) {
      this.probe.style.color = `var(${name})`;
      this.colours.set(name, getComputedStyle(this.probe).color);
    }
    return this.colours.get(name);
  }

  say(text) { document.getElementById('speech').textContent = text; }

  // ---- state ----

  is_shown(series) { return !this.off_runs.has(series.run.label) && this.kinds_on.get(series.kind) !== false; }

  /// Returns the zoomed range, or the range of all curves of the page, so that their axes agree.
  x_range() {
    if (this.zoom) return this.zoom;
    let low = Infinity, high = -Infinity;
    for (const list of this.model.metrics.values()) {
      for (const series of list) {
        const data = this.is_shown(series) ? on_axis(series, this.axis) : null;
        if (!data || data.x.length === 0) continue;
        low = Math.min(low, data.x[0]);
        high = Math.max(high, data.x[data.x.length - 1]);
      }
    }
    if (!(low <= high)) return [0, 1];
    if (this.axis !== 'step' || low < high / 20) low = Math.min(low, 0);
    return low === high ? [low - 1, high + 1] : [low, high];
  }

  zoom_to(range) {
    this.zoom = null;
    if (range) {
      const [low, high] = this.x_range();
      const least = (high - low) / 1e6;
      const begin = Math.max(low, Math.min(range[0], high - least)), end = Math.min(high, Math.max(range[1], low + least));
      if (end - begin >= least && (begin > low || end < high)) this.zoom = [begin, end];
    }
    this.reset.disabled = this.zoom === null;
    this.redraw();
  }

  redraw() { for (const chart of this.charts.values()) chart.draw(); }

  repaint() {
    this.colours.clear();
    this.redraw();
  }

  print(printing) {
    this.printing = printing;
    if (printing) { this.theme_before = document.documentElement.dataset.theme; document.documentElement.dataset.theme = 'light'; }
    else if (this.theme_before) document.documentElement.dataset.theme = this.theme_before;
    else delete document.documentElement.dataset.theme;
    this.colours.clear();
    for (const chart of this.charts.values()) if (chart.node.isConnected) chart.draw_now();
  }

  // ---- layout ----

  show(data) {
    this.model = make_model(data);
    for (const kind of this.model.kinds) {
      if (!this.kinds_on.has(kind)) this.kinds_on.set(kind, !kind.endsWith(' per pass'));
    }
    for (const axis of ['epoch', 'time']) {
      if (this.axis === axis && !data.runs.some(run => run.knots[axis])) this.axis = 'step';
    }
    const title = data.runs.length === 1 ? data.runs[0].label : `${data.runs.length} runs`;
    document.title = `${title} · danling`;
    this.show_head(title);
    this.show_controls();
    this.show_main();
  }

  /// Replaces the content by the result of `make` if they differ, so that equal content keeps focus, selection and scrolling.
  replace(node, key, make) {
    if (node.shown === key) return;
    node.shown = key;
    const content = make();
    const open = new Set([...node.querySelectorAll('details[open] > summary')].map(summary => summary.textContent));
    node.replaceChildren(...content.filter(part => part));
    for (const summary of node.querySelectorAll('details > summary')) {
      if (open.has(summary.textContent)) summary.parentNode.open = true;
    }
  }

  show_head(title) {
    const {data} = this.model;
    const head = document.getElementById('head');
    this.live = this.live ?? el('span', {class: 'live small', role: 'status'}, 'live');
    const theme = el('button', {class: 'quiet small', type: 'button', onclick: () => this.toggle_theme()}, 'Dark or light');
    const taken = new Date(data.now * 1000).toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'short'});
    const key = JSON.stringify(data.runs.map(run => ({...run, curves: null, knots: null})));
    this.replace(head, key, () => [
      el('div', {class: 'title'}, el('span', {class: 'brand'}, 'danling'), el('h1', {}, title),
        el('span', {class: 'right'}, data.live ? this.live : el('span', {class: 'soft small'}, taken), theme)),
      el('ul', {class: 'runs'}, data.runs.map(run => this.run_card(run))),
      this.notes(data.runs)]);
  }

  toggle_theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    this.repaint();
  }

  run_card(run) {
    const {summary, position} = run;
    const facts = [];
    if (position) {
      if (position.epoch !== null) facts.push(`epoch ${count_text(summary && run.status !== 'running' ? summary.epoch : position.epoch + 1)}`);
      facts.push(`step ${count_text(position.step)}`);
    }
    if (summary && run.status !== 'running') facts.push(duration_text(summary.seconds));
    const best = best_row(run);
    const score = run.score && best && best.values[run.score.path];
    if (score !== null && score !== undefined) facts.push(`best ${run.score.path} ${short(score)} in round ${best.index}`);
    const card = el('li', {class: 'run'});
    const box = el('input', {type: 'checkbox', checked: !this.off_runs.has(run.label), onchange: () => {
      this.off_runs[box.checked ? 'delete' : 'add'](run.label);
      card.classList.toggle('off', !box.checked);
      this.redraw();
      this.show_values();
    }});
    card.classList.toggle('off', !box.checked);
    const name = el('span', {class: 'name'}, run.label);
    const status = el('span', {class: `status ${run.status}`}, run.status);
    card.append(this.model.single ? el('label', {}, name, status) : el('label', {}, box, swatch(style_of_run(run)), name, status),
      el('div', {class: 'facts'}, facts.join(' · ')));
    if (run.name && run.name !== `${run.lineage}-exp`) card.append(el('div', {class: 'facts'}, run.name));
    if (summary && summary.error && run.status !== 'running') card.append(el('div', {class: 'error'}, summary.error));
    return card;
  }

  notes(runs) {
    const lines = runs.flatMap(run => run.notes.map(note => runs.length > 1 ? `${run.label}: ${note}` : note));
    return lines.length > 0 ? el('ul', {class: 'notes'}, lines.map(line => el('li', {}, line))) : null;
  }

  show_controls() {
    const {model} = this;
    const nav = document.getElementById('controls');
    const has = axis => model.data.runs.some(run => run.knots[axis]);
    const key = JSON.stringify([model.kinds, has('epoch'), has('time'), model.names.length > 4]);
    if (model.names.length === 0) { this.replace(nav, 'none', () => []); return; }
    this.replace(nav, key, () => this.controls(has));
  }

  controls(has) {
    const {model} = this;
    const axes = ['step', 'epoch', 'time'].map(axis => el('label', {title: axis === 'step' || has(axis) ? null : `no run has a ${axis} in its metrics`},
      el('input', {type: 'radio', name: 'axis', value: axis, checked: axis === this.axis, disabled: axis !== 'step' && !has(axis),
        onchange: () => { this.axis = axis; this.zoom_to(null); }}), axis[0].toUpperCase() + axis.slice(1)));
    const output = el('output', {}, this.smoothing.toFixed(2));
    const slider = el('input', {type: 'range', min: '0', max: '0.99', step: '0.01', value: String(this.smoothing), 'aria-label': 'Smoothing', 'data-control': 'smoothing',
      title: 'Exponential moving average of the training curves', oninput: () => {
        this.smoothing = Number(slider.value);
        output.textContent = this.smoothing.toFixed(2);
        this.redraw();
      }});
    const log = el('input', {type: 'checkbox', checked: this.log, 'data-control': 'log', onchange: () => { this.log = log.checked; this.redraw(); }});
    const kinds = model.kinds.map(kind => {
      const box = el('input', {type: 'checkbox', checked: this.kinds_on.get(kind), 'data-kind': kind,
        onchange: () => { this.kinds_on.set(kind, box.checked); this.redraw(); this.show_values(); }});
      return el('label', {class: 'chip'}, box, swatch(style_of_kind(model, kind)), kind);
    });
    const search = el('input', {type: 'search', placeholder: 'Filter', 'aria-label': 'Filter the charts by name', value: this.filter,
      oninput: () => { this.filter = search.value.toLowerCase(); this.show_main(); }});
    this.reset = el('button', {class: 'quiet', type: 'button', disabled: this.zoom === null, onclick: () => this.zoom_to(null)}, 'Show all');
    return [
      el('fieldset', {}, el('legend', {}, 'By'), el('span', {class: 'segments'}, axes)),
      el('label', {}, el('span', {class: 'soft'}, 'Smoothing '), slider, ' ', output),
      el('label', {class: 'chip'}, log, 'Log scale'),
      kinds.length > 1 ? el('fieldset', {}, el('legend', {class: 'unseen'}, 'Splits'), kinds) : null,
      model.names.length > 4 ? search : null, this.reset];
  }

  show_main() {
    const {model} = this;
    const main = document.getElementById('main');
    if (!this.parts) {
      this.parts = Object.fromEntries(['charts', 'rates', 'values', 'results', 'config', 'checkpoints', 'profile', 'system'].map(name => [name, el('div', {})]));
      main.append(...Object.values(this.parts), el('footer', {}, `Written by danling ${model.data.danling}. Drag to zoom, double-click to show all; Ctrl and the wheel, or two fingers, zoom too. ` +
        'On a chart that has the focus, arrow keys read values, + and − zoom, 0 shows all.'));
    }
    const is_rate = name => name.startsWith('telemetry.');
    const wanted = model.names.filter(name => metric_title(name).toLowerCase().includes(this.filter));
    for (const [name, chart] of this.charts) if (!model.metrics.has(name)) chart.update([]);
    this.show_charts(this.parts.charts, 'Curves', wanted.filter(name => !is_rate(name)));
    this.show_charts(this.parts.rates, 'Throughput', wanted.filter(is_rate));
    this.show_values();
    const {runs, now} = model.data;
    const put = (name, data, make) => {
      this.replace(this.parts[name], JSON.stringify(data), () => [make()]);
    };
    const pick = (...keys) => runs.map(run => keys.map(key => run[key]));
    put('results', pick('label', 'results', 'summary', 'status'), () => results_section(runs));
    put('config', pick('label', 'config', 'changed'), () => config_section(runs));
    put('checkpoints', [pick('label', 'checkpoints'), Math.floor(now / 10)], () => checkpoints_section(runs, now));
    put('profile', pick('label', 'profiles'), () => profile_section(runs));
    put('system', pick('label', 'code', 'metadata', 'summary', 'attempts', 'lines'), () => system_section(runs));
  }

  show_charts(part, title, names) {
    for (const name of names) {
      if (!this.charts.has(name)) {
        const chart = new Chart(this, name);
        this.charts.set(name, chart);
        this.observer.observe(chart.node);
      }
    }
    this.replace(part, names.join('\n'), 
      () => names.length > 0 ? [section(title, el('div', {class: 'charts'}, names.map(name => this.charts.get(name).node)))] : []);
    for (const name of names) this.charts.get(name).update(this.model.metrics.get(name));
  }

  show_values() {
    const shown = this.model.kinds.map(kind => this.kinds_on.get(kind));
    const key = JSON.stringify([shown, [...this.off_runs], this.model.data.version]);
    this.replace(this.parts.values, key, () => [values_section(this.model, series => this.is_shown(series))]);
  }

  // ---- live ----

  async follow() {
    while (true) {
      await new Promise(resolve => setTimeout(resolve, document.hidden ? 5000 : 1000));
      try {
        const response = await fetch(`data.json?have=${this.model.data.version}`, {cache: 'no-store'});
        if (response.status === 200) this.show(await response.json());
        else if (response.status !== 204) throw new Error(`status ${response.status}`);
        this.live.textContent = 'live';
        this.live.classList.remove('lost');
      } catch {
        this.live.textContent = 'danling watch does not respond; retrying';
        this.live.classList.add('lost');
      }
    }
  }
}

const page = new Page(JSON.parse(document.getElementById('data').textContent));
if (page.model.data.live) page.follow();
