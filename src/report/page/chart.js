// What the pictures share: colours, canvas over axes, and the tooltip.

let palette = {};
function readPalette() {
    const style = getComputedStyle(document.documentElement), read = name => style.getPropertyValue(name).trim();
    palette = { ink: read('--ink'), soft: read('--soft'), paper: read('--paper'), line: read('--line'), wash: read('--wash'),
                accent: read('--accent'), categories: CATEGORIES.map((_, i) => read('--c' + i)),
                phases: PHASES.map((_, i) => read('--phase' + i) || read('--paper')), darkPhaseInk: read('--phase3-ink') };
}

const swatch = category => `<span class="swatch" style="background:var(--c${category})"></span>`;

// A canvas with an svg over it, drawn at `width` css pixels; both scale when the page prints.
function makeChart(parent, label) {
    const box = d3.select(parent).append('div').attr('class', 'chart');
    const canvas = box.append('canvas').attr('role', 'img').attr('aria-label', label).node();
    const svg = box.append('svg').attr('aria-hidden', 'true');
    return { box: box.node(), canvas, svg };
}

function sizeChart(chart, width, height) {
    const ratio = Math.max(1, Math.min(3, window.devicePixelRatio || 1));
    chart.width = width; chart.height = height;
    chart.canvas.width = Math.round(width * ratio); chart.canvas.height = Math.round(height * ratio);
    chart.canvas.style.aspectRatio = chart.box.style.aspectRatio = `${width} / ${height}`;
    chart.svg.attr('viewBox', `0 0 ${width} ${height}`);
    chart.svg.selectAll('*').remove();
    const g = chart.canvas.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    return g;
}

// Where the pointer is, in the chart's own pixels.
function pointIn(chart, event) {
    const rect = chart.box.getBoundingClientRect();
    return [(event.clientX - rect.left) * chart.width / rect.width, (event.clientY - rect.top) * chart.height / rect.height];
}

// Ticks at round powers of two times 1, 2 or 5.
function byteTicks(max, count) {
    const base = 1024 ** unitOf(max), step = d3.tickStep(0, max / base, count) * base, ticks = [];
    for (let at = 0; at <= max * 1.0001 && step > 0; at += step) ticks.push(at);
    return ticks;
}
function byteAxis(svg, y, left, max, count) {
    const unit = unitOf(max), format = d3.format('~g');
    svg.append('g').attr('transform', `translate(${left},0)`)
        .call(d3.axisLeft(y).tickValues(byteTicks(max, count)).tickSize(4).tickFormat(v => format(v / 1024 ** unit)));
    return UNITS[unit];
}

const tip = document.getElementById('tip');
function showTip(event, html) {
    tip.innerHTML = html;
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight, gap = 14;
    const x = event.clientX + gap + w < innerWidth ? event.clientX + gap : Math.max(4, event.clientX - gap - w);
    const y = event.clientY + gap + h < innerHeight ? event.clientY + gap : Math.max(4, event.clientY - gap - h);
    tip.style.transform = `translate(${Math.round(x)}px,${Math.round(Math.max(0, y))}px)`;
}
function hideTip() { tip.hidden = true; }

// A block's owner and life, as the tooltip tells it.
function describeBlock(run, block, event) {
    const blocks = run.raw.blocks, o = ownerOf(run, blocks.owner[block]), category = categoryAt(run, block, event);
    const born = run.born[block], end = run.released[block], lines = [];
    lines.push(`<b>${escapeText(nameOf(o))}</b>`);
    lines.push(`${swatch(category)}${CATEGORIES[category]}, <b>${size(blocks.bytes[block])}</b> <span class="soft">(${exact(blocks.bytes[block])}, asked for ${d3.format(',')(blocks.requested[block])})</span>`);
    lines.push(`made in ${o.phase}${o.segment ? ', checkpoint segment ' + o.segment : ''}`);
    const first = born < run.start, step = end < NEVER ? stepAt(run, end) : -1;
    const by = step < 0 ? '' : ` in backward of ${escapeText(nameOf(ownerOf(run, run.steps[step].owner)))}`;
    const life = end < NEVER ? `freed${by}` : 'outlives the trace';
    lines.push(`${first ? 'was there before; ' : ''}${life}${!first && end < NEVER ? ', lives ' + duration(run.time[end] - run.time[born]) : ''}`);
    lines.push(`<span class="soft">pool segment ${blocks.segment[block]}, offset ${d3.format(',')(blocks.offset[block])}${o.file ? '<br>' + escapeText(o.file) + ':' + o.line : ''}</span>`);
    return lines.join('<br>');
}
