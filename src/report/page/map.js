// Addresses over time: segments as bands, blocks as rectangles.

// Segments that have memory within the view, with their place among the bands.  Their height is what
// they reach: an expandable one has many more addresses than memory.
function placeSegments(run) {
    const reach = new Map(), spans = [];
    for (const [event, segment, offset, bytes] of run.raw.memory) {
        if (bytes > 0) {
            spans.push({ segment, from: event, to: run.n - 1, offset, bytes });
            reach.set(segment, Math.max(reach.get(segment) || 0, offset + bytes));
        } else {
            endSpans(spans, segment, event, offset, -bytes);
        }
    }
    let base = 0;
    const bands = new Map();
    for (const segment of [...reach.keys()].sort((a, b) => a - b)) {
        if (!spans.some(s => s.segment === segment && s.to >= run.start)) continue;
        bands.set(segment, base);
        base += reach.get(segment);
    }
    return { bands, reach, spans: spans.filter(s => bands.has(s.segment)), total: base };
}

// Memory goes, whole or a part: what is left of a span lives on as new ones.
function endSpans(spans, segment, event, offset, bytes) {
    for (const s of spans.slice()) {
        if (s.segment !== segment || s.to < event || s.offset >= offset + bytes || s.offset + s.bytes <= offset) continue;
        const end = s.offset + s.bytes, last = s.to;
        s.to = event;
        if (s.offset < offset) spans.push({ ...s, from: event, to: last, bytes: offset - s.offset });
        if (end > offset + bytes) spans.push({ ...s, from: event, to: last, offset: offset + bytes, bytes: end - offset - bytes });
    }
}

function drawSpans(g, map, scale, y) {
    for (const s of map.spans) {
        if (s.to < scale.view[0] || s.from > scale.view[1]) continue;
        const x = scale.at(s.from), bottom = map.bands.get(s.segment) + s.offset;
        g.fillStyle = palette.wash;
        g.fillRect(x, y(bottom + s.bytes), scale.at(s.to) - x, y(bottom) - y(bottom + s.bytes));
    }
}

function drawBlocks(g, run, map, scale, y) {
    const blocks = run.raw.blocks;
    for (let b = 0; b < run.nBlocks; b++) {
        const end = Math.min(run.freed[b], run.n - 1), band = map.bands.get(blocks.segment[b]);
        if (band === undefined || end < scale.view[0] || run.born[b] > scale.view[1]) continue;
        const bottom = band + blocks.offset[b], top = y(bottom + blocks.bytes[b]), tall = y(bottom) - top;
        const height = tall > 3 ? tall - 0.5 : Math.max(0.5, tall); // a gap where there is room for one
        let from = run.born[b], category = blocks.category[b];
        for (const [event, next] of [...(run.moves.get(b) || []), [end, -1]]) {
            const x = scale.at(from);
            g.fillStyle = palette.categories[category];
            g.fillRect(x, top, Math.max(0.6, scale.at(Math.min(event, end)) - x), height);
            from = event;
            category = next;
        }
    }
}

function drawBands(g, map, y, width) {
    g.fillStyle = palette.line;
    for (const base of map.bands.values())
        if (base > 0) g.fillRect(MARGIN.left, y(base) - 0.5, width - MARGIN.left - MARGIN.right, 1);
}

function drawMap(run, width) {
    const chart = run.mapChart, height = width < 480 ? 230 : 300, bottom = height - MARGIN.bottom;
    const g = sizeChart(chart, width, height), scale = makeScale(run, width);
    run.map = run.map || placeSegments(run);
    const y = d3.scaleLinear().domain([0, d3.max(RUNS, r => (r.map = r.map || placeSegments(r)).total) || 1]).range([bottom, 16]);
    Object.assign(chart, { scale, y });
    drawSpans(g, run.map, scale, y);
    drawBands(g, run.map, y, width);
    drawBlocks(g, run, run.map, scale, y);
    const unit = byteAxis(chart.svg, y, MARGIN.left, y.domain()[1], 5);
    const label = drawTimeAxis(chart, run, scale, bottom);
    chart.svg.append('text').attr('x', 2).attr('y', 10).text('address within the pool, ' + unit);
    chart.svg.append('text').attr('x', width - MARGIN.right).attr('y', height - 2).attr('text-anchor', 'end').text(label);
    chart.overlay = chart.svg.append('g');
}

function blockInMap(run, event, address) {
    const blocks = run.raw.blocks;
    for (let b = 0; b < run.nBlocks; b++) {
        const band = run.map.bands.get(blocks.segment[b]);
        if (band === undefined || run.born[b] > event || run.freed[b] <= event) continue;
        const bottom = band + blocks.offset[b];
        if (address >= bottom && address < bottom + blocks.bytes[b]) return b;
    }
    return -1;
}

function pointAtMap(run, event) {
    const chart = run.mapChart, [px, py] = pointIn(chart, event);
    chart.overlay.selectAll('*').remove();
    if (px < MARGIN.left || px > chart.width - MARGIN.right || py < 16 || py > chart.height - MARGIN.bottom) return hideTip();
    const at = chart.scale.event(px), block = blockInMap(run, at, chart.y.invert(py));
    if (block < 0) return hideTip();
    const blocks = run.raw.blocks, bottom = run.map.bands.get(blocks.segment[block]) + blocks.offset[block];
    const x = chart.scale.at(run.born[block]), top = chart.y(bottom + blocks.bytes[block]);
    chart.overlay.append('rect').attr('class', 'pick').attr('x', x).attr('y', top)
        .attr('width', Math.max(2, chart.scale.at(Math.min(run.freed[block], run.n - 1)) - x))
        .attr('height', Math.max(2, chart.y(bottom) - top));
    showTip(event, describeBlock(run, block, at));
}

function watchMap(run) {
    const box = run.mapChart.box;
    for (const type of ['pointerdown', 'pointermove']) box.addEventListener(type, e => pointAtMap(run, e));
    box.addEventListener('pointerleave', () => { hideTip(); run.mapChart.overlay.selectAll('*').remove(); });
}
