// The graph, drained: state after `k` nodes of backward.

const player = { k: 0, timer: null };
const nSteps = () => d3.max(RUNS, run => run.steps.length) || 0;

// The last event of the state after k nodes; for 0, the instant before backward.
function eventAfter(run, k) {
    if (run.steps.length === 0) return run.n - 1;
    return k === 0 ? run.steps[0].event : run.steps[Math.min(k, run.steps.length) - 1].end;
}
function graphAt(run, k) {
    if (run.steps.length === 0) return run.raw.graphs[0];
    return run.raw.graphs[run.steps[Math.min(Math.max(k, 1), run.steps.length) - 1].graph];
}

// Rows of the drawing: nodes of one scope, in order; a row that is too long goes on in the next.
function rowsOf(run, graph, most) {
    const rows = [];
    for (const node of graph.nodes) {
        const scope = run.raw.strings[node.scope];
        let row = rows[rows.length - 1];
        if (!row || row.scope !== scope || row.nodes.length >= most) rows.push(row = { scope, nodes: [], goesOn: row && row.scope === scope });
        row.nodes.push(node);
    }
    return rows;
}

// Bytes that a node keeps at an instant: held slots that are saved activations; and what a recompute
// made again, told at the node that made it.
function keptBytes(run, node, event) {
    const seen = new Set();
    let bytes = 0;
    for (const [, , , block] of node.slots) {
        if (block < 0 || seen.has(block) || run.released[block] <= event) continue;
        if (categoryAt(run, block, event) !== ACTIVATIONS) continue;
        seen.add(block);
        bytes += run.raw.blocks.bytes[block];
    }
    return bytes;
}
function refilledBytes(run, event) {
    const byNode = new Map();
    for (const b of aliveAt(run, event)) {
        if (categoryAt(run, b, event) !== RECOMPUTED) continue;
        const node = run.raw.owners[run.raw.blocks.owner[b]][2];
        byNode.set(node, (byNode.get(node) || 0) + run.raw.blocks.bytes[b]);
    }
    return byNode;
}
const promisedBytes = node => d3.sum(node.slots, s => (s[1] === 'promised' ? s[2] : 0));

// What a full gauge stands for, the same in all runs.  One node that keeps far more than the rest (the
// logits of a large vocabulary) would make all others look empty, so it is cut off.
let full = 0;
function fullGauge() {
    if (full > 0) return full;
    const kept = RUNS.flatMap(run => run.raw.graphs.slice(0, 1).flatMap(graph =>
        graph.nodes.map(n => Math.max(keptBytes(run, n, graph.event - 1), promisedBytes(n)))));
    full = d3.quantile(kept.filter(bytes => bytes > 0).sort(d3.ascending), 0.98) || 1;
    document.getElementById('gauge').textContent = size(full);
    return full;
}

function layoutGraph(run, width) {
    const graph = graphAt(run, player.k), label = width < 480 ? 58 : 78;
    const most = Math.max(6, Math.min(24, Math.floor((width - label) / 26)));
    const rows = rowsOf(run, graph, most), across = d3.max(rows, r => r.nodes.length) || 1;
    const height = rows.length > 90 ? 11 : rows.length > 40 ? 15 : 34;
    const cell = Math.min(84, (width - label) / across), cells = new Map();
    rows.forEach((row, r) => row.nodes.forEach((node, i) =>
        cells.set(node.seq, { node, x: label + i * cell, y: r * height + 1, w: cell - 2, h: height - 3 })));
    return { graph, rows, cells, height: Math.max(1, rows.length * height), rowHeight: height, label };
}

// A box: its op above, and below the gauge of what the node keeps.
function drawCell(g, run, cell, view) {
    const { x, y, w, h, node } = cell, done = view.done.has(node.seq), now = view.running === node.seq;
    const kept = keptBytes(run, node, view.event), again = view.refilled.get(node.seq) || 0;
    const gauge = h > 24 ? h - 15 : h - 2;
    g.fillStyle = done ? palette.paper : palette.wash;
    g.fillRect(x, y, w, h);
    const fill = (bytes, from, colour) => {
        const height = Math.min(gauge - from, Math.max(bytes > 0 ? 1.5 : 0, gauge * bytes / view.most));
        g.fillStyle = colour;
        g.fillRect(x + 1, y + h - 1 - from - height, w - 2, height);
        return from + height;
    };
    fill(again, fill(kept, 0, palette.categories[ACTIVATIONS]), palette.categories[RECOMPUTED]);
    const promised = !done && !now && kept + again === 0 && promisedBytes(node) > 0;
    g.strokeStyle = now ? palette.accent : promised ? palette.categories[RECOMPUTED] : palette.line;
    g.lineWidth = now ? 2.5 : 1;
    g.setLineDash(promised ? [3, 2] : []);
    g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    g.setLineDash([]);
    if (h > 24 && w >= 30) drawCellText(g, run.raw.strings[node.op], cell, done);
}

function drawCellText(g, text, cell, done) {
    let shown = text;
    for (const px of [10, 9, 8.5]) {
        g.font = `${px}px system-ui, sans-serif`;
        if (g.measureText(text).width <= cell.w - 5) break;
    }
    while (shown.length > 3 && g.measureText(shown).width > cell.w - 5) shown = shown.slice(0, -1);
    g.textBaseline = 'middle';
    g.fillStyle = done ? palette.soft : palette.ink;
    g.fillText(shown, cell.x + 3, cell.y + 7.5);
}

function viewOf(run, layout) {
    const k = Math.min(player.k, run.steps.length), event = eventAfter(run, k), done = new Set();
    for (let i = 0; i < k - 1; i++)
        if (run.raw.graphs[run.steps[i].graph] === layout.graph) done.add(run.raw.owners[run.steps[i].owner][2]);
    return { k, event, done, most: fullGauge(), running: k > 0 ? run.raw.owners[run.steps[k - 1].owner][2] : -1, refilled: refilledBytes(run, event) };
}

function drawGraph(run, width) {
    if (!run.raw.graphs.length) return;
    const layout = layoutGraph(run, width), view = viewOf(run, layout), g = sizeChart(run.graphChart, width, layout.height);
    run.layout = layout;
    for (const cell of layout.cells.values()) drawCell(g, run, cell, view);
    g.font = `${layout.rowHeight < 13 ? 9 : 11}px system-ui, sans-serif`;
    g.textBaseline = 'middle';
    g.fillStyle = palette.soft;
    layout.rows.forEach((row, r) => { if (!row.goesOn) g.fillText(row.scope || 'model', 0, (r + 0.5) * layout.rowHeight, layout.label - 6); });
    drawEdges(run, g, layout, view);
}

// The nodes that get the running one's gradient: thin frames.
function drawEdges(run, g, layout, view) {
    const here = layout.cells.get(view.running);
    g.strokeStyle = palette.accent;
    g.lineWidth = 1.2;
    for (const seq of here ? here.node.from : []) {
        const to = layout.cells.get(seq);
        if (to) g.strokeRect(to.x + 0.5, to.y + 0.5, to.w - 1, to.h - 1);
    }
}

// ---- what happened during the last node ---------------------------------------------------------

function releasedDuring(run, k) {
    const freed = { saved: [], savedBytes: 0, otherBytes: 0, made: 0 };
    if (k === 0 || k > run.steps.length) return freed;
    const { event, end } = run.steps[k - 1];
    for (let i = event; i <= end; i++) {
        const block = run.ref[i];
        if (run.kind[i] === ACTION.alloc) freed.made += run.raw.blocks.bytes[block];
        if (run.kind[i] !== ACTION.free_requested) continue;
        const category = categoryAt(run, block, i), was = categoryAt(run, block, Math.max(run.born[block], event));
        if ([category, was].some(c => c === ACTIVATIONS || c === RECOMPUTED)) {
            freed.saved.push(block);
            freed.savedBytes += run.raw.blocks.bytes[block];
        } else {
            freed.otherBytes += run.raw.blocks.bytes[block];
        }
    }
    freed.saved.sort((a, b) => run.raw.blocks.bytes[b] - run.raw.blocks.bytes[a]);
    return freed;
}

function describeRelease(run, k) {
    const freed = releasedDuring(run, k), most = 4;
    if (k === 0) return '<p>Forward is done; nothing has been given back yet.</p>';
    const items = freed.saved.slice(0, most).map(b => {
        const o = ownerOf(run, run.raw.blocks.owner[b]);
        return `<li>${bytesOf(run.raw.blocks.bytes[b])}: ${escapeText(nameOf(o))}</li>`;
    });
    if (freed.saved.length > most) items.push(`<li>and ${freed.saved.length - most} more</li>`);
    const others = `${size(freed.made)} allocated, ${size(freed.otherBytes)} of gradients and temporaries given back`;
    return (freed.saved.length ? `Saved tensors released: <b>${bytesOf(freed.savedBytes)}</b><ul>${items.join('')}</ul>`
                               : '<p>No saved tensor was released.</p>') + `<span class="soft">${others}</span>`;
}

function fillLiveBar(run, k) {
    const event = eventAfter(run, k), max = d3.max(RUNS, r => r.allocated[r.peak]) || 1, box = run.panel;
    box.querySelector('.livebar').innerHTML = CATEGORIES.map((name, c) => {
        const bytes = run.by[event * N_CATEGORIES + c];
        return bytes > 0 ? `<span style="width:${100 * bytes / max}%;background:var(--c${c})" title="${name}: ${size(bytes)}"></span>` : '';
    }).join('') + `<i style="left:calc(${100 * run.allocated[run.peak] / max}% - 2px)" title="peak"></i>`;
    box.querySelector('.live').innerHTML = `live: ${bytesOf(run.allocated[event], `runs.${run.index}.live`)}`;
    box.querySelector('.saved').innerHTML = 'saved for backward: ' +
        bytesOf(run.by[event * N_CATEGORIES + ACTIVATIONS] + run.by[event * N_CATEGORIES + RECOMPUTED], `runs.${run.index}.saved`);
}

function fillBackward(run) {
    const k = Math.min(player.k, run.steps.length), now = run.panel.querySelector('.now');
    now.innerHTML = k === 0 ? 'before backward'
        : `node ${k} of ${run.steps.length}: <b>${escapeText(nameOf(ownerOf(run, run.steps[k - 1].owner)))}</b>`;
    fillLiveBar(run, k);
    run.panel.querySelector('.released').innerHTML = describeRelease(run, k);
    drawGraph(run, run.width);
}

function makeBackward(run, parent) {
    parent.innerHTML = `<h3>${escapeText(run.name)}</h3><div class="now"></div><div class="livebar"></div>` +
        '<div class="under"><span class="live"></span><span class="saved"></span></div><div class="released"></div>';
    run.panel = parent;
    run.graphChart = makeChart(parent, `Nodes of ${run.name} and what they keep`);
    run.graphChart.box.classList.add('graph');
    run.graphChart.box.addEventListener('pointermove', e => pointAtGraph(run, e));
    run.graphChart.box.addEventListener('pointerdown', e => pointAtGraph(run, e));
    run.graphChart.box.addEventListener('pointerleave', hideTip);
}

function pointAtGraph(run, event) {
    const [x, y] = pointIn(run.graphChart, event);
    for (const { node, ...c } of run.layout ? run.layout.cells.values() : []) {
        if (x < c.x || x > c.x + c.w || y < c.y || y > c.y + c.h) continue;
        const slots = node.slots.map(([name, state, bytes, block]) => {
            const category = block < 0 ? -1 : categoryAt(run, block, run.layout.graph.event - 1);
            return `<br>${category >= 0 ? swatch(category) : ''}${name}: ${state}${bytes ? ', ' + size(bytes) : ''}${category >= 0 && category !== ACTIVATIONS ? ' of ' + CATEGORIES[category] : ''}`;
        });
        return showTip(event, `<b>${escapeText(run.raw.strings[node.op])} #${node.seq}</b>${node.scope ? ' in ' + escapeText(run.raw.strings[node.scope]) : ''}` +
            `<br><span class="soft">saved when forward was done:</span>${slots.join('') || '<br>nothing'}`);
    }
    hideTip();
}

// ---- the player ---------------------------------------------------------------------------------

function goTo(k) {
    player.k = Math.max(0, Math.min(nSteps(), Math.round(k)));
    const slider = document.getElementById('slider');
    slider.max = nSteps();
    slider.value = player.k;
    document.getElementById('position').textContent = `${player.k} of ${nSteps()} nodes have run`;
    RUNS.forEach(fillBackward);
}

function setPlaying(on) {
    clearInterval(player.timer);
    player.timer = null;
    document.getElementById('play').textContent = on ? 'Pause' : 'Play';
    if (!on) return;
    if (player.k >= nSteps()) goTo(0);
    const stride = Math.max(1, nSteps() / 150), wait = Math.max(80, Math.min(400, 15000 / Math.max(1, nSteps())));
    player.timer = setInterval(() => {
        goTo(player.k + stride);
        if (player.k >= nSteps()) setPlaying(false);
    }, wait);
}

function watchPlayer() {
    document.getElementById('slider').addEventListener('input', e => { setPlaying(false); goTo(Number(e.target.value)); });
    document.getElementById('play').addEventListener('click', () => setPlaying(player.timer === null));
    document.getElementById('back').addEventListener('click', () => { setPlaying(false); goTo(player.k - 1); });
    document.getElementById('forth').addEventListener('click', () => { setPlaying(false); goTo(player.k + 1); });
}
