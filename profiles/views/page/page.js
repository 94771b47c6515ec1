'use strict';
const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const LOOKS = JSON.parse(one('#looks').textContent);

/** A time in ns to four digits, as `numbers.duration` writes it. */
function duration(ns) {
  for (const [unit, scale] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    const shown = Number((Math.abs(ns) / scale).toPrecision(4));
    if (shown >= 1) return `${(ns / scale).toFixed(Math.max(0, 4 - String(Math.trunc(shown)).length))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

// ---- a tip beside the pointer

const tip = one('#tip');
function say(text, event) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 6))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}
document.addEventListener('pointermove', (event) => {
  if (event.target.id === 'picture') return;
  const marked = event.target.closest?.('[data-tip], .drawing [role=graphics-symbol][aria-label]:not([aria-roledescription=axis], [aria-roledescription=legend])');
  say(marked ? marked.dataset.tip ?? marked.getAttribute('aria-label').replaceAll('; ', '\n') : '', event);
});
document.addEventListener('pointerleave', () => say(''));

// ---- light or dark

one('#theme').addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.style.colorScheme ? root.style.colorScheme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.style.colorScheme = dark ? 'light' : 'dark';
  document.dispatchEvent(new Event('repaint'));
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => document.dispatchEvent(new Event('repaint')));

// ---- tables: sorting by column, filtering by text

function sort(table, column, heading) {
  const body = table.tBodies[0];
  const falling = heading.getAttribute('aria-sort') === 'descending';
  const rows = [...body.rows].map((row) => ({ row, key: row.cells[column].dataset.sort }));
  const numeric = rows.every(({ key }) => key === '' || !Number.isNaN(Number(key))) && rows.some(({ key }) => key !== '');
  const sign = falling || (!numeric && !heading.hasAttribute('aria-sort')) ? 1 : -1;
  rows.sort((a, b) => {
    if (a.key === '' || b.key === '') return (a.key === '') - (b.key === '');  // the unknown last, either way
    return sign * (numeric ? a.key - b.key : a.key.localeCompare(b.key));
  });
  all('th', table.tHead).forEach((other) => other.removeAttribute('aria-sort'));
  heading.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
  body.append(...rows.map(({ row }) => row));
}
for (const table of all('table')) {
  all('th', table.tHead).forEach((heading, column) => {
    one('button', heading).addEventListener('click', () => sort(table, column, heading));
  });
}
for (const input of all('input[data-for]')) {
  input.addEventListener('input', () => {
    const wanted = input.value.toLowerCase();
    for (const row of one(`#${input.dataset.for}`).tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}

one('#download')?.addEventListener('click', (event) => {
  event.currentTarget.href = URL.createObjectURL(new Blob([one('#measures').textContent], { type: 'application/json' }));
});

// ---- paper has nothing to click: everything is unfolded for it, and folded again

let folded = [];
addEventListener('beforeprint', () => {
  folded = all('details:not([open])');
  for (const details of folded) details.open = true;
});
addEventListener('afterprint', () => {
  for (const details of folded) details.open = false;
});

// ---- the timeline

const TYPES = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float64: Float64Array };

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const block = await new Response(stream).arrayBuffer();
  const length = new DataView(block).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(block, 4, length)));
  const array = ([type, place, count]) => new TYPES[type](block, 4 + length + place, count);
  for (const gpu of header.gpus) {
    gpu.steps = gpu.steps.map(array);
    for (const lane of gpu.lanes) lane.bins = lane.bins.map(([owner, where]) => [owner, array(where)]);
    for (const raw of gpu.raw) raw.lanes = raw.lanes.map((lane) => slices(lane, array, raw.start));
  }
  return header;
}

function slices(lane, array, origin) {
  const start = new Float64Array(lane.step[2]);
  let at = origin + lane.first;
  array(lane.step).forEach((step, i) => { start[i] = at += step; });
  return { start, length: array(lane.length), kind: array(lane.kind), label: array(lane.label), bytes: lane.bytes && array(lane.bytes) };
}

/** The first of the sorted slices that ends after `ns`. */
function firstAfter({ start, length }, ns) {
  let low = 0, high = start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] + length[middle] > ns) high = middle; else low = middle + 1;
  }
  return low;
}

class Picture {
  static TITLE = 22; static LEDGER = 42; static STREAM = 17; static AXIS = 24;

  constructor(canvas, data) {
    Object.assign(this, { canvas, data, total: data.end - data.start, pointers: new Map() });
    this.owners = data.owners.map((name) => ({ name, ...LOOKS[name], idle: name.startsWith('idle') }));
    this.view = [0, this.total];
    this.lay();
    this.listen();
    this.buttons();
    this.links();
    this.measure();
    new ResizeObserver(() => this.paint()).observe(canvas);
    document.addEventListener('repaint', () => this.paint());
    this.show(0, this.total);
  }

  /** Where each lane lies, from the top. */
  lay() {
    let y = Picture.AXIS;
    this.rows = [];
    for (const gpu of this.data.gpus) {
      gpu.y = y;
      y += Picture.TITLE;
      gpu.lanes.forEach((lane, index) => {
        const height = index ? Picture.STREAM : Picture.LEDGER;
        this.rows.push({ gpu, lane, index, y, height });
        y += height + 3;
      });
      y += 12;
    }
    this.height = y;
    this.canvas.style.height = `${y}px`;
  }

  show(from, to) {
    const width = Math.min(Math.max(to - from, 200), this.total);
    const start = Math.min(Math.max((from + to - width) / 2, 0), this.total - width);
    this.view = [start, start + width];
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
    clearTimeout(this.talk);
    this.talk = setTimeout(() => {
      one('#picture-says').textContent = width === this.total
        ? `Showing the whole window, ${duration(this.total)}.`
        : `Showing ${duration(width)} from ${duration(start)} after the window's start.`;
    }, 250);
    for (const button of all('#windows button')) {
      button.setAttribute('aria-pressed', String(Math.abs(button.from - start) < width / 50 && Math.abs(button.to - this.view[1]) < width / 50));
    }
    Object.assign(this.canvas.dataset, { from: start, to: this.view[1] });
  }

  zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
    this.show(at - (at - this.view[0]) * factor, at + (this.view[1] - at) * factor);
  }

  move(share) {
    const by = (this.view[1] - this.view[0]) * share;
    this.show(this.view[0] + by, this.view[1] + by);
  }

  buttons() {
    const offered = [['whole', 0, this.total], ...this.data.windows.map((name, i) => {
      const raws = this.data.gpus.map((gpu) => gpu.raw[i]);
      const from = Math.min(...raws.map((raw) => raw.start)), to = Math.max(...raws.map((raw) => raw.end));
      return [name, from - (to - from) * .01, to + (to - from) * .01];
    })];
    for (const [name, from, to] of offered) {
      const button = Object.assign(document.createElement('button'), { type: 'button', textContent: name, from, to });
      button.addEventListener('click', () => this.show(from, to));
      one('#windows').append(button);
    }
  }

  /** A time that a table names, with as much around it. */
  links() {
    for (const button of all('button.when')) {
      button.addEventListener('click', () => {
        const { shift } = this.data.gpus[button.dataset.gpu];
        const from = Number(button.dataset.from) + shift, to = Number(button.dataset.to) + shift;
        this.show(from - (to - from) / 2, to + (to - from) / 2);
        this.canvas.scrollIntoView({ block: 'center' });
        this.canvas.focus({ preventScroll: true });
      });
    }
  }

  /** Asking an element for its width is slow, and painting needs it for every slice. */
  measure() {
    this.width = this.canvas.clientWidth;
    this.gutter = this.width < 620 ? 0 : 112;
  }

  x(ns) { return this.gutter + (ns - this.view[0]) / (this.view[1] - this.view[0]) * (this.width - this.gutter); }
  ns(x) { return this.view[0] + (x - this.gutter) / (this.width - this.gutter) * (this.view[1] - this.view[0]); }

  /** The stretches of a lane that are drawn slice by slice: those of a fair size in this view. */
  raws({ gpu, index }) {
    return gpu.raw
      .filter((raw) => raw.end > this.view[0] && raw.start < this.view[1] && raw.end - raw.start > (this.view[1] - this.view[0]) / 6)
      .map((raw) => ({ from: raw.start, to: raw.end, ...raw.lanes[index] }));
  }

  paint() {
    this.measure();
    const { canvas, width } = this, scale = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = this.height * scale;
    const c = this.c = canvas.getContext('2d');
    c.scale(scale, scale);
    const style = getComputedStyle(canvas);
    // Colours are read off elements: a custom property would give the text `light-dark(...)`.
    this.ink = style.color;
    this.soft = getComputedStyle(one('.hint')).color;
    this.line = getComputedStyle(one('section#timeline')).borderTopColor;
    this.ground = getComputedStyle(document.body).backgroundColor;
    c.font = `12px ${style.fontFamily}`;
    c.textBaseline = 'middle';
    this.axis();
    for (const row of this.rows) this.lane(row);
    for (const gpu of this.data.gpus) this.steps(gpu);
  }

  axis() {
    const { c } = this, room = Math.max(2, (this.width - this.gutter) / 110);
    const rough = (this.view[1] - this.view[0]) / room, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((many) => many * power >= rough);
    c.fillStyle = this.soft;
    c.strokeStyle = this.line;
    for (let at = Math.ceil(this.view[0] / step) * step; at <= this.view[1]; at += step) {
      const x = Math.round(this.x(at)) + .5;
      c.beginPath(); c.moveTo(x, Picture.AXIS - 5); c.lineTo(x, this.height); c.stroke();
      const [unit, size] = step >= 1e9 ? ['s', 1e9] : step >= 1e6 ? ['ms', 1e6] : step >= 1e3 ? ['µs', 1e3] : ['ns', 1];
      if (x < this.width - 48) c.fillText(`${Math.round(at / size).toLocaleString('en-GB')} ${unit}`, x + 3, 8);
    }
  }

  steps(gpu) {
    const { c } = this, [start, end] = gpu.steps;
    c.fillStyle = this.ink;
    c.font = `600 12.5px ${getComputedStyle(this.canvas).fontFamily}`;
    const more = gpu.left_out ? `  (${gpu.left_out} more stream${gpu.left_out > 1 ? 's' : ''})` : '';
    c.fillText(gpu.title + more, 0, gpu.y + Picture.TITLE / 2);
    const titled = c.measureText(gpu.title + more).width + 12;
    c.font = `11px ${getComputedStyle(this.canvas).fontFamily}`;
    c.fillStyle = this.soft;
    c.strokeStyle = this.soft;
    for (let i = 0; i < start.length; i++) {
      if (end[i] < this.view[0] || start[i] > this.view[1]) continue;
      const x = this.x(start[i]), wide = this.x(end[i]) - x;
      if (wide < 5) continue;
      if (x >= this.gutter) { c.beginPath(); c.moveTo(Math.round(x) + .5, gpu.y + Picture.TITLE - 4); c.lineTo(Math.round(x) + .5, gpu.y + Picture.TITLE + Picture.LEDGER); c.stroke(); }
      const name = gpu.names?.[i] ?? `${i}`, at = Math.max(x + 3, this.gutter, titled);
      if (wide > 46 && at + 40 < this.x(end[i])) c.fillText(`step ${name}`, at, gpu.y + Picture.TITLE / 2);
    }
  }

  lane(row) {
    const { c, width: right } = this;
    c.fillStyle = this.ground;
    c.fillRect(this.gutter, row.y, right - this.gutter, row.height);
    this.filled = undefined;
    c.save();
    c.beginPath(); c.rect(this.gutter, row.y, right - this.gutter, row.height); c.clip();
    const raws = this.raws(row);
    this.bins(row, raws);
    for (const raw of raws) this.slices(row, raw);
    c.restore();
    if (this.gutter) {
      c.fillStyle = this.soft;
      c.fillText(row.lane.name, 0, row.y + row.height / 2, this.gutter - 8);
    } else {
      this.label(row);
    }
  }

  /** On a narrow screen a lane has no room beside it: its name stands in it, on ground of its own. */
  label({ lane, y }) {
    const { c } = this;
    c.save();
    c.font = `10px ${getComputedStyle(this.canvas).fontFamily}`;
    c.globalAlpha = .82;
    c.fillStyle = this.ground;
    c.fillRect(0, y, c.measureText(lane.name).width + 8, 13);
    c.globalAlpha = 1;
    c.fillStyle = this.ink;
    c.fillText(lane.name, 4, y + 7);
    c.restore();
  }

  bins(row, raws) {
    const { c, width: right } = this, count = row.lane.bins[0]?.[1].length ?? 0, size = this.total / count;
    for (let x = this.gutter; x < right; x++) {
      const from = this.ns(x), to = this.ns(x + 1);
      if (from >= this.total || to <= 0 || raws.some((raw) => from < raw.to && to > raw.from)) continue;
      const first = Math.max(0, Math.floor(from / size)), last = Math.min(count, Math.max(first + 1, Math.round(to / size)));
      let y = row.y + row.height;
      for (const [owner, share] of row.lane.bins) {
        let sum = 0;
        for (let i = first; i < last; i++) sum += share[i];
        const height = sum / (last - first) / 255 * row.height;
        if (!height) continue;
        this.fill(owner);
        c.fillRect(x, y - height, 1, height);
        y -= height;
      }
    }
  }

  /** The colour of an owner; setting it anew is slow even where it is the same. */
  fill(owner) {
    if (this.filled !== owner) this.c.fillStyle = this.owners[owner].colour;
    this.filled = owner;
  }

  /** Slices of some width as boxes; narrower ones together, as the shares that they take of a column of pixels. */
  slices(row, raw) {
    const { c } = this, column = { x: 0, shares: new Float64Array(this.owners.length), any: false };
    for (let i = firstAfter(raw, this.view[0]); i < raw.start.length && raw.start[i] < this.view[1]; i++) {
      const x = this.x(raw.start[i]), end = this.x(raw.start[i] + raw.length[i]);
      if (end - x < 2) {
        for (let from = Math.floor(x); from <= end; from++) {
          if (from !== column.x) this.flush(row, column);
          column.x = from;
          column.any = true;
          column.shares[raw.kind[i]] += Math.max(0, Math.min(end, from + 1) - Math.max(x, from));
        }
        continue;
      }
      this.flush(row, column);
      c.globalAlpha = !this.wanted || this.wanted.has(raw.label[i]) && row.index ? 1 : .18;
      const owner = this.owners[raw.kind[i]], height = owner.idle ? row.height * .55 : row.height;
      this.fill(raw.kind[i]);
      c.fillRect(x, row.y + row.height - height, row.index && end - x > 6 ? end - x - .5 : end - x, height);
      if (end - x > 44) this.write(this.data.labels[raw.label[i]], Math.max(x, this.gutter), row.y + row.height - height / 2, end, owner);
      c.globalAlpha = 1;
    }
    this.flush(row, column);
  }

  /** Shows what is called so, the rest pale; in the stretches that are drawn slice by slice. */
  find(text) {
    const wanted = text.trim().toLowerCase();
    this.wanted = wanted ? new Set(this.data.labels.flatMap((label, i) => label.toLowerCase().includes(wanted) ? [i] : [])) : undefined;
    this.matches = [];
    for (const { gpu, index } of wanted ? this.rows : []) {
      if (!index) continue;
      for (const raw of gpu.raw) {
        const { start, length, label } = raw.lanes[index];
        label.forEach((one, i) => { if (this.wanted.has(one)) this.matches.push([start[i], length[i]]); });
      }
    }
    this.matches.sort((a, b) => a[0] - b[0]);
    this.match = -1;
    one('#found').textContent = wanted ? `${this.matches.length.toLocaleString('en-GB')} in the steps drawn in full${this.matches.length ? '; Enter shows the next' : ''}` : '';
    this.paint();
  }

  next() {
    if (!this.matches?.length) return;
    this.match = (this.match + 1) % this.matches.length;
    const [start, length] = this.matches[this.match], around = Math.max(length * 20, 20_000);
    this.show(start - around / 2, start + length + around / 2);
  }

  flush(row, column) {
    if (!column.any) return;
    let y = row.y + row.height;
    // What ran alone on a stream stays visible however short it was. The ledger has no holes: a column that a box
    // covers in part shows the proportions of the rest.
    const whole = row.index ? 1 : column.shares.reduce((sum, share) => sum + share, 0);
    column.shares.forEach((share, owner) => {
      if (!share) return;
      const height = Math.min(1, share / whole) * row.height, shown = row.index ? Math.max(2, height) : height;
      this.fill(owner);
      this.c.fillRect(column.x, y - shown, 1, shown);
      y -= shown;
    });
    column.shares.fill(0);
    column.any = false;
  }

  write(text, x, y, end, owner) {
    const { c } = this, room = Math.floor((end - x - 8) / 6.4);
    if (room < Math.min(text.length, 9)) return;
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(owner.colour.slice(at, at + 2), 16));
    this.filled = undefined;
    c.fillStyle = r * .3 + g * .59 + b * .11 > 140 ? '#10151c' : '#fff';
    c.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, x + 4, y);
  }

  /** What lies under a point, in words; '' where nothing does. */
  at(x, y) {
    const row = this.rows.find((lane) => y >= lane.y && y < lane.y + lane.height), ns = this.ns(x);
    if (!row || x < this.gutter || ns < 0 || ns > this.total) return '';
    const raw = this.raws(row).find(({ from, to }) => ns >= from && ns < to);
    if (raw) {
      const near = this.ns(x + 1.5) - ns, i = firstAfter(raw, ns - near);
      if (i >= raw.start.length || raw.start[i] > ns + near) return '';
      const label = this.data.labels[raw.label[i]], owner = this.owners[raw.kind[i]];
      const moved = raw.bytes?.[i] ? `\n${raw.bytes[i].toLocaleString('en-GB')} bytes` : '';
      return `${label}\n${duration(raw.length[i])}, from ${duration(raw.start[i])}${moved}\n${row.index ? row.lane.name : owner.meaning}`;
    }
    const count = row.lane.bins[0]?.[1].length, bin = Math.min(count - 1, Math.floor(ns / this.total * count));
    const parts = row.lane.bins.map(([owner, share]) => [share[bin] / 255, this.owners[owner].label]).filter(([share]) => share > 0).sort((a, b) => b[0] - a[0]);
    return parts.length ? [`${row.gpu.title}, ${row.lane.name}, ${duration(this.total / count)} at ${duration(ns)}`, ...parts.map(([share, label]) => `${label} ${Math.round(share * 100)} %`)].join('\n') : '';
  }

  listen() {
    const { canvas, pointers } = this;
    const keys = { ArrowLeft: () => this.move(-.2), ArrowRight: () => this.move(.2), ArrowUp: () => this.zoom(.6), ArrowDown: () => this.zoom(1 / .6), '+': () => this.zoom(.6), '=': () => this.zoom(.6), '-': () => this.zoom(1 / .6), Home: () => this.show(0, this.total), 0: () => this.show(0, this.total) };
    canvas.addEventListener('keydown', (event) => { if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); } });
    const tools = { in: () => this.zoom(.5), out: () => this.zoom(2), left: () => this.move(-.3), right: () => this.move(.3) };
    for (const button of all('[data-do]')) button.addEventListener('click', tools[button.dataset.do]);
    one('#find').addEventListener('input', (event) => this.find(event.target.value));
    one('#find').addEventListener('keydown', (event) => { if (event.key === 'Enter') { event.preventDefault(); this.next(); } });
    canvas.addEventListener('wheel', (event) => {
      if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.zoom(Math.exp(event.deltaY / 250), this.ns(event.offsetX)); }
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); this.move(event.deltaX / this.width); }
    }, { passive: false });
    canvas.addEventListener('dblclick', (event) => this.zoom(1 / 3, this.ns(event.offsetX)));
    canvas.addEventListener('pointerdown', (event) => { pointers.set(event.pointerId, event.offsetX); canvas.setPointerCapture(event.pointerId); });
    for (const over of ['pointerup', 'pointercancel']) canvas.addEventListener(over, (event) => pointers.delete(event.pointerId));
    canvas.addEventListener('pointerleave', () => say(''));
    canvas.addEventListener('pointermove', (event) => {
      if (!pointers.has(event.pointerId)) return say(this.at(event.offsetX, event.offsetY), event);
      const before = [...pointers.values()];
      const moved = event.offsetX - pointers.get(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
      const now = [...pointers.values()];
      if (now.length === 2) this.zoom(Math.abs(before[0] - before[1]) / Math.max(1, Math.abs(now[0] - now[1])), this.ns((now[0] + now[1]) / 2));
      else this.move(-moved / (this.width - this.gutter));
      return say('');
    });
  }
}

if (one('#packed')) {
  unpack(one('#packed').textContent).then((data) => { globalThis.picture = new Picture(one('#picture'), data); });
}
