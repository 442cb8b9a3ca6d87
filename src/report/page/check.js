// With #check at the end of its address the page checks itself and writes what it found into the
// document, for tests: its numbers against a plain recount, the slider, and pointing.

function recount(run, event) {
    const by = {};
    CATEGORIES.forEach(name => { by[name] = 0; });
    for (let b = 0; b < run.nBlocks; b++) {
        let category = run.raw.blocks.category[b], alive = false;
        for (let i = 0; i <= event; i++) {
            if (run.kind[i] === ACTION.alloc && run.ref[i] === b) alive = true;
            if (run.kind[i] === ACTION.free_requested && run.ref[i] === b) alive = false;
        }
        for (const [at, to] of run.moves.get(b) || []) if (at <= event) category = to;
        if (alive) by[CATEGORIES[category]] += run.raw.blocks.bytes[b];
    }
    return by;
}
// The plain recount is quadratic: large traces are looked up instead.
function recountFast(run, event) {
    if (run.nBlocks * event < 5e7) return recount(run, event);
    const by = {};
    CATEGORIES.forEach((name, c) => { by[name] = d3.sum(aliveAt(run, event), b => (categoryAt(run, b, event) === c ? run.raw.blocks.bytes[b] : 0)); });
    return by;
}

const shownNumber = path => {
    const all = [...document.querySelectorAll(`data[data-path="${path}"]`)].map(d => Number(d.value));
    return all.length && all.every(v => v === all[0]) ? all[0] : null;
};

function checkRun(run) {
    const path = `runs.${run.index}.`, found = { peak_allocated_bytes: shownNumber(path + 'peak_allocated_bytes'),
        peak_reserved_bytes: shownNumber(path + 'peak_reserved_bytes'), memory: {}, recount: recountFast(run, run.peak) };
    CATEGORIES.forEach(name => { found.memory[name] = shownNumber(path + 'memory.' + name); });
    found.rows = d3.sum(run.raw.rows, r => r[3]);
    found.host = shownNumber(path + 'host_peak_allocated_bytes'); // null: no row, nothing was offloaded
    return found;
}

function checkSlider() {
    const slider = document.getElementById('slider'), positions = [];
    for (const share of [0, 0.25, 0.5, 0.9, 1]) {
        slider.value = Math.round(share * nSteps());
        slider.dispatchEvent(new Event('input'));
        positions.push({
            k: player.k, text: document.getElementById('position').textContent,
            live: RUNS.map(run => shownNumber(`runs.${run.index}.live`)),
            recount: RUNS.map(run => d3.sum(Object.values(recountFast(run, eventAfter(run, player.k))))),
            node: RUNS.map(run => run.panel.querySelector('.now').textContent),
        });
    }
    return positions;
}

// Points into the stack at the peak, half way up.  (#point at the end of the address does it for pictures.)
function pointAtPeak(run) {
    const box = run.chart.box.getBoundingClientRect(), chart = run.chart;
    const event = chart.columns.find(c => c.best === run.peak) || chart.columns[0];
    const y = chart.y(run.allocated[event.best] * 0.5) * box.height / chart.height + box.top;
    const x = (event.x + 0.5) * box.width / chart.width + box.left;
    chart.box.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, pointerType: 'mouse' }));
}
function checkPointing(run) {
    pointAtPeak(run);
    const text = tip.hidden ? '' : tip.textContent;
    leaveTimeline(run);
    return text;
}

// Buttons, and dragging over the middle third of the first timeline; over events, since a step that the system
// held up may have none in the middle third of its time.
function checkControls() {
    const chart = RUNS[0].chart, rect = chart.box.getBoundingClientRect(), found = {};
    const click = id => document.getElementById(id).click();
    goTo(0);
    click('forth'); click('forth'); click('back');
    found.k = player.k;
    click('play');
    found.plays = player.timer !== null && document.getElementById('play').textContent === 'Pause';
    click('play');
    found.stops = player.timer === null;
    const shown = axis;
    document.querySelector('input[name=axis][value=events]').click();
    for (const [type, at] of [['pointerdown', 1 / 3], ['pointermove', 1 / 2], ['pointerup', 2 / 3]])
        chart.box.dispatchEvent(new PointerEvent(type, { clientX: rect.left + at * rect.width, clientY: rect.top + rect.height / 2,
                                                         pointerType: 'mouse', button: 0 }));
    found.zoomed = RUNS[0].view ? (RUNS[0].view[1] - RUNS[0].view[0]) / RUNS[0].n : 1;
    click('whole');
    found.whole = RUNS[0].view === null;
    document.querySelector(`input[name=axis][value=${shown}]`).click();
    return found;
}

function checkPage() {
    const found = { runs: RUNS.map(checkRun), slider: checkSlider(), pointing: RUNS.map(checkPointing), controls: checkControls(), frontier: FRONTIER && checkFrontier(),
                    wide: document.documentElement.scrollWidth <= document.documentElement.clientWidth, errors };
    const out = document.createElement('pre');
    out.id = 'check';
    out.hidden = true;
    out.textContent = JSON.stringify(found);
    document.body.append(out);
}
