// The sections below the curves: tables of results, configs, checkpoints, code and profiles.

const number_cell = (value, attributes) => typeof value === 'number' || typeof value === 'string'
  ? el('td', {class: 'number', title: String(value), ...attributes}, short(value))
  : Array.isArray(value) ? el('td', {class: 'number', title: value.join(', ')}, value.slice(0, 4).map(short).join(', ') + (value.length > 4 ? ', …' : ''))
  : el('td', {class: 'number soft', ...attributes}, '–');

function table(heads, rows, caption) {
  return el('div', {class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': caption}, el('table', {},
    el('thead', {}, el('tr', {}, heads.map(head => el('th', {scope: 'col', class: head.number ? 'number' : null}, head.text ?? head)))),
    el('tbody', {}, rows)));
}

const section = (title, ...content) => el('section', {'aria-label': title}, el('h2', {}, title), ...content);
const fold = (title, ...content) => el('details', {}, el('summary', {}, title), ...content);
const star = text => el('span', {class: 'star', title: 'best'}, '★ ', text);

/// Returns whether lower or higher values are better, if known.
function direction_of(path, score) {
  const name = path.slice(path.lastIndexOf('.') + 1);
  if (score && path === score.path) return score.higher ? 1 : -1;
  return name.includes('loss') || name === 'ppl' || name === 'perplexity' ? -1 : 0;
}

function best_index(values, direction) {
  let best = -1;
  values.forEach((value, i) => {
    if (typeof value === 'number' && (best < 0 || (value - values[best]) * direction > 0)) best = i;
  });
  return direction === 0 ? -1 : best;
}

const best_row = run => run.results && run.results.rows.find(row => row.index === run.results.best);
const last_row = run => run.results && run.results.rows[run.results.rows.length - 1];

/// Makes a table with one row per run: the numbers of its best round and of its test.
function comparison(runs) {
  const score = runs.map(run => run.score).find(rule => rule) ?? null;
  const of_run = run => {
    const round = best_row(run) ?? last_row(run);
    const test = run.summary ? Object.entries(run.summary.details).filter(([path]) => path.startsWith('test.')).map(([path, value]) => [path.slice(5), value]) : [];
    return new Map([...Object.entries(round ? round.values : {}), ...test].filter(([path]) => !path.startsWith('train.') && !path.endsWith('.lr')));
  };
  const values = runs.map(of_run);
  let paths = [...new Set(values.flatMap(map => [...map.keys()]))].slice(0, 24);
  if (score && paths.includes(score.path)) paths = [score.path, ...paths.filter(path => path !== score.path)];
  const best = new Map(paths.map(path => [path, best_index(values.map(map => map.get(path)), direction_of(path, score))]));
  const heads = ['Run', 'Status', {text: 'Round', number: true}, ...paths.map(path => ({text: path.replace('.', ' '), number: true})), {text: 'Time', number: true}];
  const rows = runs.map((run, i) => el('tr', {},
    el('th', {scope: 'row'}, swatch(style_of_run(run)), ' ', run.label), el('td', {}, run.status),
    el('td', {class: 'number'}, String((best_row(run) ?? last_row(run) ?? {index: '–'}).index)),
    ...paths.map(path => runs.length > 1 && best.get(path) === i
      ? el('td', {class: 'number', title: String(values[i].get(path))}, star(short(values[i].get(path)))) : number_cell(values[i].get(path))),
    el('td', {class: 'number'}, run.summary ? duration_text(run.summary.seconds) : '–')));
  return [table(heads, rows, 'Comparison of the runs'), el('p', {class: 'small soft'},
    `Each run at its best round${score ? ` by ${score.path} (${score.higher ? 'higher' : 'lower'} is better)` : ''}, else its last. ★ marks the best of a column whose direction is known.`)];
}

function rounds(run) {
  const {rows, best} = run.results;
  const paths = [...new Set(rows.flatMap(row => Object.keys(row.values)))];
  const cells = row => paths.map(path => number_cell(row.values[path]));
  return table([{text: 'Round', number: true}, ...paths.map(path => ({text: path.replace('.', ' '), number: true}))],
    rows.map(row => el('tr', {class: row.index === best ? 'best' : null},
      el('th', {scope: 'row', class: 'number'}, row.index === best ? star(String(row.index)) : String(row.index)), ...cells(row))), `Results of ${run.label}`);
}

function results_section(runs) {
  const parts = runs.length > 1 ? comparison(runs) : [];
  for (const run of runs) {
    const tested = run.summary ? Object.entries(run.summary.details).filter(([path]) => path.startsWith('test.')) : [];
    const content = [];
    if (run.results && run.results.rows.length > 0) content.push(rounds(run));
    if (tested.length > 0 && runs.length === 1) {
      const weights = run.summary.facts.test_weights;
      content.push(el('p', {}, 'Test', weights ? ` with the weights of ${weights}: ` : ': ',
        tested.map(([path, value]) => `${path.slice(path.lastIndexOf('.') + 1)} ${short(value)}`).join(', ')));
    }
    if (content.length === 0) continue;
    parts.push(...(runs.length > 1 ? [fold(`Rounds of ${run.label}`, ...content)] : content));
  }
  return parts.length > 0 ? section('Results', ...parts) : null;
}

const key_cell = key => el('th', {scope: 'row', class: 'key'}, key);

function key_table(runs, maps, keys, caption) {
  const heads = ['Key', ...(runs.length > 1 ? runs.map(run => run.label) : ['Value'])];
  return table(heads, keys.map(key => el('tr', {}, key_cell(key), ...maps.map(map => el('td', {class: 'key'}, map.has(key) ? map.get(key) : '–')))), caption);
}

function config_section(runs) {
  const full = runs.map(run => new Map(run.config)), changed = runs.map(run => new Map(run.changed));
  const all = [...new Set(full.flatMap(map => [...map.keys()]))];
  const parts = [];
  if (runs.length > 1) {
    const different = all.filter(key => full.some(map => map.get(key) !== full[0].get(key)));
    parts.push(el('h4', {}, 'Differences between the runs'), different.length > 0 ? key_table(runs, full, different, 'Differences between the configs') : el('p', {}, 'The configs are equal.'));
  }
  const own = [...new Set(changed.flatMap(map => [...map.keys()]))];
  if (own.length > 0) parts.push(el('h4', {}, 'Different from the defaults'), key_table(runs, changed, own, 'Differences from the defaults'));
  if (all.length > 0) parts.push(fold(`The whole config, ${all.length} keys`, key_table(runs, full, all, 'The whole config')));
  return parts.length > 0 ? section('Config', ...parts) : null;
}

function checkpoints_section(runs, now) {
  const parts = [];
  for (const run of runs.filter(one => one.checkpoints && one.checkpoints.length > 0)) {
    const files = new Map();
    for (const file of run.checkpoints) files.set(file.inode, [...(files.get(file.inode) ?? []), file]);
    const groups = [...files.values()].sort((a, b) => b[0].written - a[0].written || (a[0].name < b[0].name ? -1 : 1));
    const total = groups.reduce((sum, group) => sum + group[0].bytes, 0);
    const rows = groups.map(group => el('tr', {}, el('td', {class: 'key'}, group.map(file => file.name).join(' = ')),
      el('td', {class: 'number', title: `${count_text(group[0].bytes)} bytes`}, bytes_text(group[0].bytes)),
      el('td', {class: 'number', title: new Date(group[0].written * 1000).toISOString()}, age_text(now - group[0].written))));
    const list = table(['Name', {text: 'Size', number: true}, {text: 'Written', number: true}], rows, `Checkpoints of ${run.label}`);
    const text = `${groups.length} files, ${bytes_text(total)}`;
    parts.push(...(runs.length > 1 ? [fold(`${run.label}: ${text}`, list)] : [list, el('p', {class: 'small soft'}, `${text}; names joined by = are one file.`)]));
  }
  return parts.length > 0 ? section('Checkpoints', ...parts) : null;
}

function system_section(runs) {
  const facts = runs.map(run => {
    const {code, summary} = run;
    const out = new Map([['directory', run.dir], ['run id', run.id]]);
    if (code) {
      out.set('commit', code.commit || code.problem || 'unknown');
      if (code.commit) out.set('working tree', code.dirty ? `changed (${code.id})` : 'clean');
      out.set('attempt', code.started);
    }
    if (run.attempts && run.attempts.length > 0) out.set('earlier attempts', run.attempts.join(', '));
    if (summary) {
      out.set('host', summary.host);
      out.set('finished', summary.finished_at);
      for (const [name, value] of Object.entries(summary.facts)) out.set(name.replaceAll('_', ' '), String(value));
    } else if (run.lock && run.lock.host) out.set('host', `${run.lock.host}, process ${run.lock.pid}`);
    if (run.log) out.set('log', run.log);
    out.set('lines of metrics', count_text(run.lines));
    return out;
  });
  const keys = [...new Set(facts.flatMap(map => [...map.keys()]))];
  const parts = [key_table(runs, facts, keys, 'Code and system')];
  for (const run of runs) {
    const of = runs.length > 1 ? ` of ${run.label}` : '';
    for (const file of run.metadata ?? []) {
      parts.push(fold(`${file.name}${of}`, key_table([run], [new Map(file.entries)], file.entries.map(entry => entry[0]), file.name)));
    }
    if (run.code && run.code.diff) parts.push(fold(`Uncommitted changes${of}${run.code.diff_cut ? ', the beginning' : ''}`, el('pre', {tabIndex: 0}, run.code.diff)));
  }
  return section('Code and system', ...parts);
}

function profile_section(runs) {
  const parts = [];
  const listing = (rows, wall, column, title) => {
    if (rows.length === 0) return [];
    const time = row => row[column] ?? row.total_us ?? 0;
    const sorted = [...rows].sort((a, b) => time(b) - time(a));
    const whole = wall > 0 ? wall : sorted.reduce((sum, row) => sum + time(row), 0);
    return [el('h4', {}, title), table(['Name', {text: 'Time', number: true}, {text: 'Share', number: true}, {text: 'Calls', number: true}, {text: ''}],
      sorted.map(row => {
        const bar = el('span', {class: 'bar'});
        bar.style.width = `${Math.min(100, 100 * time(row) / whole)}%`;
        return el('tr', {}, el('th', {scope: 'row', class: 'key'}, String(row.name)), el('td', {class: 'number'}, `${short(time(row) / 1000)} ms`),
          el('td', {class: 'number'}, `${(100 * time(row) / whole).toFixed(1)} %`), number_cell(row.count), el('td', {'aria-hidden': 'true', class: 'wide'}, bar));
      }), title)];
  };
  for (const run of runs) {
    for (const profile of run.profiles ?? []) {
      const wall = as_number(profile.wall_us);
      const content = [...listing(profile.ranges, wall, 'total_us', 'Ranges'), ...listing(profile.operators, wall, 'self_us', 'Operators, by their own time')];
      parts.push(el('p', {class: 'small soft'}, `${runs.length > 1 ? `${run.label}: ` : ''}${profile.path}${wall > 0 ? `, ${duration_text(wall / 1e6)} of wall time` : ''}`), ...content);
    }
  }
  return parts.length > 0 ? section('Profile', ...parts) : null;
}

/// Makes a table of the curves' numbers, for screen readers.
function values_section(model, is_shown) {
  const rows = [];
  for (const name of model.names) {
    for (const series of model.metrics.get(name).filter(is_shown)) {
      const {curve} = series;
      const low = curve.values.length ? curve.values.reduce((a, b, i) => b < curve.values[a] ? i : a, 0) : -1;
      const high = curve.values.length ? curve.values.reduce((a, b, i) => b > curve.values[a] ? i : a, 0) : -1;
      const extreme = i => i < 0 ? el('td', {class: 'number'}, '–') : el('td', {class: 'number', title: String(curve.values[i])}, `${short(curve.values[i])} `, el('span', {class: 'soft'}, `@ ${tick_text(curve.steps[i])}`));
      rows.push(el('tr', {}, el('th', {scope: 'row'}, metric_title(name)), el('td', {}, model.single ? series.kind : `${series.run.label} · ${series.kind}`),
        number_cell(curve.last[1]), extreme(low), extreme(high), el('td', {class: 'number'}, count_text(curve.count)),
        el('td', {class: 'number'}, count_text((curve.bad_counts ?? []).reduce((a, b) => a + b, 0)))));
    }
  }
  const heads = ['Metric', 'Curve', ...['Last', 'Lowest @ step', 'Highest @ step', 'Values', 'NaN or ∞'].map(text => ({text, number: true}))];
  return rows.length > 0 ? fold('Values of the curves', table(heads, rows, 'Values of the curves')) : null;
}
