// Live bytes stacked by category, phases above, reserved over it, and the unused share below.

const MARGIN = { left: 52, right: 10, top: 34, bottom: 36 };
let axis = RUNS.every(r => r.raw.device.startsWith('dry')) ? 'events' : 'time';

// Events against pixels: `at` gives x of an event, `event` the last event at or before x.
function makeScale(run, width) {
    const view = run.view || [run.start, run.n - 1];
    const value = axis === 'time' ? i => run.time[i] : i => i;
    const scale = d3.scaleLinear().domain([value(view[0]), Math.max(value(view[1]), value(view[0]) + 1)])
        .range([MARGIN.left, width - MARGIN.right]);
    return {
        scale, view, at: i => scale(value(Math.max(view[0], Math.min(view[1], i)))),
        event: x => {
            const want = scale.invert(x);
            if (axis === 'events') return Math.max(view[0], Math.min(view[1], Math.floor(want)));
            return Math.max(view[0], Math.min(view[1], d3.bisectRight(run.time, want) - 1));
        },
    };
}

// For each column of pixels the event with the most allocated bytes that lies in it, so that no peak is
// lost however many events share a column.
function columnsOf(run, scale, width) {
    const columns = [];
    let before = scale.event(MARGIN.left);
    for (let x = MARGIN.left; x < width - MARGIN.right; x++) {
        const last = scale.event(x + 1);
        let best = before;
        for (let i = before + 1; i <= last; i++) if (run.allocated[i] > run.allocated[best]) best = i;
        columns.push({ x, best, from: before, to: last });
        before = last;
    }
    return columns;
}

// Fills between two rows of heights as steps, one path: seams between columns would show in print.
function fillSteps(g, columns, below, above) {
    g.beginPath();
    columns.forEach((c, i) => { g.lineTo(c.x, above[i]); g.lineTo(c.x + 1, above[i]); });
    for (let i = columns.length - 1; i >= 0; i--) { g.lineTo(columns[i].x + 1, below[i]); g.lineTo(columns[i].x, below[i]); }
    g.fill();
}

function drawStack(g, run, columns, y) {
    const sums = new Float64Array(columns.length);
    let below = Array.from(sums, y);
    for (let c = 0; c < N_CATEGORIES; c++) {
        columns.forEach((column, i) => { sums[i] += run.by[column.best * N_CATEGORIES + c]; });
        const above = Array.from(sums, y);
        g.fillStyle = palette.categories[c];
        fillSteps(g, columns, below, above);
        below = above;
    }
}

function drawReserved(g, run, columns, y) {
    g.strokeStyle = palette.ink;
    g.lineWidth = 1.2;
    g.beginPath();
    columns.forEach((c, i) => (i ? g.lineTo(c.x, y(run.reserved[c.to])) : g.moveTo(c.x, y(run.reserved[c.to]))));
    g.stroke();
}

function drawPhases(g, run, scale) {
    const top = MARGIN.top - 20, height = 14, longest = new Map();
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    for (const p of run.phases) {
        if (p.to < scale.view[0] || p.from > scale.view[1]) continue;
        const x = scale.at(p.from), w = scale.at(p.to) - x;
        g.fillStyle = palette.phases[p.phase];
        g.fillRect(x, top, Math.max(w, 0.7), height);
        if (!longest.has(p.phase) || w > longest.get(p.phase).w) longest.set(p.phase, { x, w });
    }
    for (const [phase, { x, w }] of longest) {
        const text = PHASES[phase];
        if (g.measureText(text).width + 8 > w) continue;
        g.fillStyle = phase === RECOMPUTE ? palette.darkPhaseInk : palette.ink;
        g.fillText(text, x + 4, top + height / 2 + 0.5);
    }
}

function drawTimeAxis(chart, run, scale, y) {
    const g = chart.svg.append('g').attr('transform', `translate(0,${y})`);
    const count = Math.max(2, Math.floor(chart.width / 110));
    if (axis === 'events') {
        const counted = d3.scaleLinear().domain(scale.scale.domain().map(i => i - run.start)).range(scale.scale.range());
        g.call(d3.axisBottom(counted).ticks(count).tickSize(4));
        return 'events of the allocator';
    }
    const start = run.time[run.start], span = run.time[scale.view[1]] - run.time[scale.view[0]];
    const unit = span >= 2e9 ? [1e9, 's'] : span >= 2e6 ? [1e6, 'ms'] : [1e3, 'µs'];
    const shown = d3.scaleLinear().domain(scale.scale.domain().map(t => (t - start) / unit[0])).range(scale.scale.range());
    g.call(d3.axisBottom(shown).ticks(count).tickSize(4));
    return 'time, ' + unit[1];
}

function drawPeak(chart, run, scale, y) {
    if (run.peak < scale.view[0] || run.peak > scale.view[1]) return;
    const x = scale.at(run.peak), top = run.allocated[run.peak], right = x > chart.width * 0.62;
    chart.svg.append('line').attr('class', 'peak').attr('x1', x).attr('x2', x).attr('y1', MARGIN.top).attr('y2', y(0));
    chart.svg.append('circle').attr('cx', x).attr('cy', y(top)).attr('r', 3.5).attr('fill', palette.ink)
        .attr('stroke', palette.paper);
    const text = chart.svg.append('text').attr('class', 'strong').attr('x', x + (right ? -10 : 10)).attr('y', y(top) + 16)
        .attr('text-anchor', right ? 'end' : 'start').text('peak ' + size(top));
    const box = text.node().getBBox();
    chart.svg.insert('rect', 'text.strong').attr('class', 'plate').attr('x', box.x - 4).attr('y', box.y - 1).attr('rx', 2)
        .attr('width', box.width + 8).attr('height', box.height + 2);
    text.raise();
}

const largestReserved = () => d3.max(RUNS, run => d3.max(run.reserved.subarray(run.start)));

function drawTimeline(run, width) {
    const chart = run.chart, height = width < 480 ? 250 : 320, g = sizeChart(chart, width, height);
    const scale = makeScale(run, width), max = largestReserved() || 1;
    const y = d3.scaleLinear().domain([0, max * 1.04]).range([height - MARGIN.bottom, MARGIN.top]);
    const columns = columnsOf(run, scale, width);
    Object.assign(chart, { scale, y, columns });
    drawStack(g, run, columns, y);
    drawReserved(g, run, columns, y);
    drawPhases(g, run, scale);
    const unit = byteAxis(chart.svg, y, MARGIN.left, max, 6);
    const label = drawTimeAxis(chart, run, scale, height - MARGIN.bottom);
    chart.svg.append('text').attr('x', 2).attr('y', 10).text('bytes, ' + unit);
    chart.svg.append('text').attr('x', width - MARGIN.right).attr('y', height - 2).attr('text-anchor', 'end').text(label);
    const end = columns[columns.length - 1].to;
    chart.svg.append('text').attr('x', width - MARGIN.right).attr('y', y(run.reserved[end]) - 4).attr('text-anchor', 'end')
        .attr('class', 'strong').style('font-weight', 400).text('reserved');
    drawPeak(chart, run, scale, y);
    chart.overlay = chart.svg.append('g');
    drawFragmentation(run, width, scale, columns);
}

// The share of reserved bytes that no block uses; of the events in a column the largest.
function drawFragmentation(run, width, scale, columns) {
    const chart = run.fragmentation, height = 96, top = 16, bottom = height - 22, g = sizeChart(chart, width, height);
    const y = d3.scaleLinear().domain([0, 1]).range([bottom, top]);
    const share = i => (run.reserved[i] > 0 ? 1 - run.active[i] / run.reserved[i] : 0);
    const tops = columns.map(c => {
        let worst = 0;
        for (let i = c.from; i <= c.to; i++) worst = Math.max(worst, share(i));
        return y(worst);
    });
    g.fillStyle = g.strokeStyle = palette.soft;
    g.globalAlpha = 0.35;
    fillSteps(g, columns, tops.map(() => bottom), tops);
    g.globalAlpha = 1;
    g.beginPath();
    columns.forEach((c, i) => g.lineTo(c.x + 0.5, tops[i]));
    g.stroke();
    chart.svg.append('g').attr('transform', `translate(${MARGIN.left},0)`)
        .call(d3.axisLeft(y).tickValues([0, 0.5, 1]).tickSize(4).tickFormat(v => 100 * v));
    chart.svg.append('text').attr('x', 2).attr('y', 10).text('reserved but unused, %');
    drawTimeAxis(chart, run, scale, bottom);
}

// ---- pointing ---------------------------------------------------------------------------------

// The block at an instant and a height in the stack: categories in order, in each the oldest below.
function blockInStack(run, event, bytes) {
    let category = 0, below = 0;
    while (category < N_CATEGORIES && bytes >= below + run.by[event * N_CATEGORIES + category])
        below += run.by[event * N_CATEGORIES + category++];
    if (category === N_CATEGORIES || bytes < 0) return -1;
    for (const b of aliveAt(run, event)) {
        if (categoryAt(run, b, event) !== category) continue;
        if (bytes < below + run.raw.blocks.bytes[b]) return b;
        below += run.raw.blocks.bytes[b];
    }
    return -1;
}

function describeInstant(run, event) {
    const by = CATEGORIES.map((name, c) => [name, c, run.by[event * N_CATEGORIES + c]]).filter(d => d[2] > 0);
    return `<b>${size(run.allocated[event])} allocated</b>, ${size(run.reserved[event])} reserved` +
        by.reverse().map(([name, c, bytes]) => `<br>${swatch(c)}${name} ${size(bytes)}`).join('');
}

function showLife(chart, run, block, event) {
    const { scale, y } = chart, overlay = chart.overlay, x = scale.at(event);
    overlay.selectAll('*').remove();
    overlay.append('line').attr('class', 'cursor').attr('x1', x).attr('x2', x).attr('y1', MARGIN.top).attr('y2', y(0));
    if (block < 0) return;
    const from = scale.at(run.born[block]), to = scale.at(Math.min(run.released[block], run.n - 1));
    overlay.append('line').attr('class', 'life').attr('x1', from).attr('x2', Math.max(to, from + 2))
        .attr('y1', y(0) + 2).attr('y2', y(0) + 2);
}

function pointAtTimeline(run, event) {
    const chart = run.chart, [px, py] = pointIn(chart, event);
    if (px < MARGIN.left || px > chart.width - MARGIN.right || py > chart.height - MARGIN.bottom) return leaveTimeline(run);
    const column = chart.columns[Math.min(chart.columns.length - 1, Math.floor(px - MARGIN.left))];
    const block = py < MARGIN.top ? -1 : blockInStack(run, column.best, chart.y.invert(py));
    showLife(chart, run, block, column.best);
    showTip(event, block < 0 ? describeInstant(run, column.best) : describeBlock(run, block, column.best));
}
function leaveTimeline(run) {
    hideTip();
    run.chart.overlay.selectAll('*').remove();
}

function zoomTo(run, from, to) {
    const scale = run.chart.scale;
    const view = [scale.event(Math.min(from, to)), Math.min(run.n - 1, scale.event(Math.max(from, to)) + 1)];
    if (view[1] - view[0] < 4) return;
    run.view = view;
    document.getElementById('whole').hidden = false;
    render();
}

// Drag with a mouse looks closer; a finger points, and scrolls the page.
function watchTimeline(run) {
    const box = run.chart.box;
    let from = null;
    box.addEventListener('pointerdown', e => {
        if (e.pointerType === 'mouse' && e.button === 0) from = pointIn(run.chart, e)[0];
        else pointAtTimeline(run, e);
    });
    box.addEventListener('pointermove', e => {
        if (from === null) return pointAtTimeline(run, e);
        const to = pointIn(run.chart, e)[0], chart = run.chart;
        hideTip();
        chart.overlay.selectAll('*').remove();
        chart.overlay.append('rect').attr('class', 'drag').attr('x', Math.min(from, to)).attr('width', Math.abs(to - from))
            .attr('y', MARGIN.top).attr('height', chart.height - MARGIN.top - MARGIN.bottom);
    });
    box.addEventListener('pointerup', e => {
        const to = pointIn(run.chart, e)[0], start = from;
        from = null;
        if (start !== null && Math.abs(to - start) > 6) zoomTo(run, start, to);
    });
    box.addEventListener('pointerleave', () => { from = null; leaveTimeline(run); });
}
